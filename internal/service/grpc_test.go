package service

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestGRPCConnections reads what the gRPC server tells clients: the streams that a connection may have, the end of a
// connection for its age, and for pings that come too often.
func TestGRPCConnections(t *testing.T) {
	t.Parallel()
	grpcAddr, _, _, _ := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRoot(t)
		s.Listeners.MaxStreams = 77
	}))
	aging, _, _, _ := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRoot(t)
		s.Listeners.MaxConnAge = 50 * time.Millisecond
		s.Listeners.MaxConnGrace = 50 * time.Millisecond
	}))

	tooMany := 10
	if testenv.Transport() == nativeTransport {
		tooMany = 5000 // it counts them with other frames
	}
	streams := uint32(0)
	connectHTTP2(t, grpcAddr, func(f http2.Frame) bool {
		if settings, ok := f.(*http2.SettingsFrame); ok {
			streams, _ = settings.Value(http2.SettingMaxConcurrentStreams)
		}
		return streams != 0
	})
	if streams != 77 {
		t.Errorf("a connection may have %d streams, want 77", streams)
	}
	for _, c := range []struct {
		name, address string
		pings         int
		want          http2.ErrCode
		reason        string
	}{
		{"age", aging, 0, http2.ErrCodeNo, "max_age"},
		{"pings", grpcAddr, tooMany, http2.ErrCodeEnhanceYourCalm, "too_many_pings"},
	} {
		var away *http2.GoAwayFrame
		reason := ""
		framer := connectHTTP2(t, c.address, func(f http2.Frame) bool { _, first := f.(*http2.SettingsFrame); return first })
		for range c.pings {
			if framer.WritePing(false, [8]byte{}) != nil {
				break // the service has closed the connection
			}
		}
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				break // the service closes it after the grace
			}
			if frame, ok := f.(*http2.GoAwayFrame); ok && away == nil {
				away, reason = frame, string(frame.DebugData())
			}
		}
		if away == nil || away.ErrCode != c.want || reason != c.reason {
			t.Errorf("%s: GOAWAY %v %q, want %v %q", c.name, away, reason, c.want, c.reason)
		}
	}
}

// connectHTTP2 connects, and reads frames until one is the last.
func connectHTTP2(t *testing.T, address string, last func(http2.Frame) bool) *http2.Framer {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if last(f) {
			return framer
		}
	}
}
