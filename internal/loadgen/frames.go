package loadgen

import (
	"errors"
	"fmt"

	"golang.org/x/net/http2"
)

// handle handles one frame of the server.
func (s *session) handle(frame http2.Frame) error {
	switch f := frame.(type) {
	case *http2.HeadersFrame:
		s.of = s.find(f.StreamID)
		return s.headers(f.HeaderBlockFragment(), f.HeadersEnded(), f.StreamEnded())
	case *http2.ContinuationFrame:
		return s.headers(f.HeaderBlockFragment(), f.HeadersEnded(), s.of.ends)
	case *http2.DataFrame:
		return s.data(f)
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
			return s.framer.WritePing(true, f.Data)
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
	s.of.ends = ends
	if !complete || len(s.header) > 0 {
		if s.header = append(s.header, fragment...); len(s.header) > maxHeader {
			return fmt.Errorf("the server sent more than %d bytes of headers", maxHeader)
		}
		if !complete {
			return nil
		}
		fragment = s.header
	}
	_, err := s.decoder.Write(fragment)
	if err = errors.Join(err, s.decoder.Close()); err != nil {
		return fmt.Errorf("read the headers of an answer: %w", err)
	}
	s.header = s.header[:0]
	if ends && s.requests[s.of.id] == s.of {
		s.finish(s.of)
	}
	return nil
}

// data reads a part of an answer, and gives the server back its window.
func (s *session) data(f *http2.DataFrame) error {
	if s.received += int(f.Length); s.received >= ownWindow/2 {
		_ = s.framer.WriteWindowUpdate(0, uint32(s.received))
		s.received = 0
	}
	r := s.requests[f.StreamID]
	if r == nil {
		return nil
	}
	if s.lane.m.plan.Message.keyHeader == "" { // otherwise the status is the answer
		r.data(f.Data(), s.lane.m.plan.Message.allows)
	}
	if f.StreamEnded() {
		s.finish(r)
	}
	return nil
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
	for id, r := range s.requests {
		if id > f.LastStreamID {
			s.fail(r, unavailable(fmt.Sprintf("GOAWAY %v: the server did not process the request", f.ErrCode)))
		}
	}
}
