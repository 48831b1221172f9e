package loadgen

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/net/http2"
)

// handle handles one frame of the server.
func (s *session) handle(f *frame) error {
	switch f.kind {
	case http2.FrameHeaders:
		s.of = s.find(f.stream)
		return s.headers(f.payload, f.flags.Has(http2.FlagHeadersEndHeaders), f.flags.Has(http2.FlagHeadersEndStream))
	case http2.FrameContinuation:
		return s.headers(f.payload, f.flags.Has(http2.FlagContinuationEndHeaders), s.of.ends)
	case http2.FrameData:
		s.data(f)
	case http2.FrameSettings:
		return s.settings(f)
	case http2.FrameWindowUpdate:
		more := binary.BigEndian.Uint32(f.payload) &^ (1 << 31)
		if more == 0 {
			return errors.New("the server sent WINDOW_UPDATE without an increment")
		}
		if f.stream == 0 {
			s.window += int64(more)
		}
	case http2.FrameRSTStream:
		if r := s.requests.at(f.stream); r != nil {
			s.fail(r, reset(http2.ErrCode(binary.BigEndian.Uint32(f.payload))))
		}
	case http2.FramePing:
		if !f.flags.Has(http2.FlagPingAck) {
			s.out = append(appendFrame(s.out, http2.FramePing, http2.FlagPingAck, 0, len(f.payload)), f.payload...)
		}
	case http2.FrameGoAway:
		s.goAway(f)
	case http2.FramePushPromise:
		return errors.New("the server sent PUSH_PROMISE, which was forbidden to it")
	}
	return nil
}

// find returns a request, or one that nothing reads if the stream has ended: its header block still changes the table.
func (s *session) find(id uint32) *request {
	if r := s.requests.at(id); r != nil {
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
	m, err := s.meanings.read(fragment)
	if err != nil {
		return fmt.Errorf("read the headers of an answer: %w", err)
	}
	s.of.hear(m)
	s.header = s.header[:0]
	if ends && s.requests.at(s.of.id) == s.of {
		s.finish(s.of)
	}
	return nil
}

// data reads a part of an answer, and gives the server back its window.
func (s *session) data(f *frame) {
	if s.received += f.length; s.received >= ownWindow/2 {
		s.out = appendNumberFrame(s.out, http2.FrameWindowUpdate, 0, uint32(s.received))
		s.received = 0
	}
	r := s.requests.at(f.stream)
	if r == nil {
		return
	}
	if s.lane.m.plan.Message.keyHeader == "" { // otherwise the status is the answer
		r.data(f.payload, s.lane.m.plan.Message.allows)
	}
	if f.flags.Has(http2.FlagDataEndStream) {
		s.finish(r)
	}
}

// settings applies the server's settings and acknowledges them.
func (s *session) settings(f *frame) error {
	if f.flags.Has(http2.FlagSettingsAck) {
		return nil
	}
	for rest := f.payload; len(rest) > 0; rest = rest[6:] {
		if len(rest) < 6 {
			return fmt.Errorf("the server sent SETTINGS of %d bytes", len(f.payload))
		}
		v := http2.Setting{ID: http2.SettingID(binary.BigEndian.Uint16(rest)), Val: binary.BigEndian.Uint32(rest[2:])}
		if err := v.Valid(); err != nil {
			return err
		}
		switch v.ID {
		case http2.SettingMaxConcurrentStreams:
			s.most = int(min(uint32(s.lane.most), v.Val))
		case http2.SettingInitialWindowSize:
			s.streamWindow = int64(v.Val)
		case http2.SettingHeaderTableSize:
			s.blocks.limitTable(v.Val)
		}
	}
	size := len(s.lane.message)
	switch {
	case s.most < s.lane.most && s.lane.m.plan.Rate == 0:
		return fmt.Errorf("the server takes %d requests at a time on a connection, not %d: use more connections", s.most,
			s.lane.most)
	case s.streamWindow < int64(size):
		return fmt.Errorf("the server takes %d bytes on a stream, less than the request of %d bytes", s.streamWindow, size)
	}
	s.settled = true
	s.out = appendFrame(s.out, http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
	return nil
}

// goAway fails the requests that the server has not processed. The others are awaited, and no new ones begin.
func (s *session) goAway(f *frame) {
	s.leaving = true
	last, code := binary.BigEndian.Uint32(f.payload)&^(1<<31), http2.ErrCode(binary.BigEndian.Uint32(f.payload[4:]))
	s.requests.all(func(r *request) {
		if r.id > last {
			s.fail(r, unavailable(fmt.Sprintf("GOAWAY %v: the server did not process the request", code)))
		}
	})
}
