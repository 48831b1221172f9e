package loadgen

import (
	"errors"
	"fmt"

	"golang.org/x/net/http2"
)

// handle handles one frame of the server. The frames of almost all answers are read in place: x/net's framer copies
// each frame and allocates some, which takes more CPU than everything else here. It reads all other frames.
func (s *session) handle(raw []byte) error {
	f, ok := readFrame(raw)
	switch {
	case !ok || s.open:
		return s.handleOther(raw)
	case f.kind == http2.FrameData:
		s.data(f.stream, f.payload, len(f.payload), f.flags.Has(http2.FlagDataEndStream))
		return nil
	}
	s.of = s.find(f.stream)
	return s.headers(f.payload, true, f.flags.Has(http2.FlagHeadersEndStream))
}

// handleOther handles a frame that is not read in place.
func (s *session) handleOther(raw []byte) error {
	s.raw.Reset(raw)
	read, err := s.framer.ReadFrame()
	if err != nil {
		return fmt.Errorf("the server sent a frame that is not allowed: %w", err)
	}
	switch f := read.(type) {
	case *http2.HeadersFrame:
		s.of = s.find(f.StreamID)
		return s.headers(f.HeaderBlockFragment(), f.HeadersEnded(), f.StreamEnded())
	case *http2.ContinuationFrame:
		return s.headers(f.HeaderBlockFragment(), f.HeadersEnded(), s.of.ends)
	case *http2.DataFrame:
		s.data(f.StreamID, f.Data(), int(f.Length), f.StreamEnded())
	case *http2.SettingsFrame:
		return s.settings(f)
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			s.window += int64(f.Increment)
		}
	case *http2.RSTStreamFrame:
		if r := s.requests[f.StreamID]; r != nil {
			s.fail(r, reset(f.ErrCode))
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = s.framer.WritePing(true, f.Data) // to a buffer
		}
	case *http2.GoAwayFrame:
		s.goAway(f)
	case *http2.PushPromiseFrame:
		return errors.New("the server sent PUSH_PROMISE, which was forbidden to it")
	}
	return nil
}

// find returns a request, or one that nothing reads if the stream has ended: its header block still changes the table.
func (s *session) find(id uint32) *request {
	if r := s.requests[id]; r != nil {
		return r
	}
	return &request{}
}

// headers reads a part of a header block: the headers or the trailers of an answer.
func (s *session) headers(fragment []byte, complete, ends bool) error {
	s.of.ends, s.open = ends, !complete
	if !complete || len(s.header) > 0 {
		if s.header = append(s.header, fragment...); len(s.header) > maxHeader {
			return fmt.Errorf("the server sent more than %d bytes of headers", maxHeader)
		}
		if !complete {
			return nil
		}
		fragment = s.header
	}
	m, err := s.meanings.read(fragment)
	if err != nil {
		return fmt.Errorf("read the headers of an answer: %w", err)
	}
	s.of.hear(m)
	s.header = s.header[:0]
	if ends && s.requests[s.of.id] == s.of {
		s.finish(s.of)
	}
	return nil
}

// data reads a part of an answer, and gives the server back its window. length is that of the frame, with padding.
func (s *session) data(stream uint32, part []byte, length int, ends bool) {
	if s.received += length; s.received >= ownWindow/2 {
		_ = s.framer.WriteWindowUpdate(0, uint32(s.received)) // to a buffer
		s.received = 0
	}
	r := s.requests[stream]
	if r == nil {
		return
	}
	if s.lane.m.plan.Message.keyHeader == "" { // otherwise the status is the answer
		r.data(part, s.lane.m.plan.Message.allows)
	}
	if ends {
		s.finish(r)
	}
}

// settings applies the server's settings and acknowledges them.
func (s *session) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	err := f.ForeachSetting(func(v http2.Setting) error {
		switch v.ID {
		case http2.SettingMaxConcurrentStreams:
			s.most = int(min(uint32(s.lane.most), v.Val))
		case http2.SettingInitialWindowSize:
			s.streamWindow = int64(v.Val)
		case http2.SettingHeaderTableSize:
			s.blocks.limitTable(v.Val)
		}
		return v.Valid()
	})
	size := len(s.lane.message)
	switch {
	case err != nil:
		return err
	case s.most < s.lane.most && s.lane.m.plan.Rate == 0:
		return fmt.Errorf("the server takes %d requests at a time on a connection, not %d: use more connections", s.most,
			s.lane.most)
	case s.streamWindow < int64(size):
		return fmt.Errorf("the server takes %d bytes on a stream, less than the request of %d bytes", s.streamWindow, size)
	}
	s.settled = true
	return s.framer.WriteSettingsAck()
}

// goAway fails the requests that the server has not processed. The others are awaited, and no new ones begin.
func (s *session) goAway(f *http2.GoAwayFrame) {
	s.leaving = true
	for _, r := range s.requests {
		if r.id > f.LastStreamID {
			s.fail(r, unavailable(fmt.Sprintf("GOAWAY %v: the server did not process the request", f.ErrCode)))
		}
	}
}
