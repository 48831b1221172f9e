package service

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestIdleMemory checks how much memory an idle connection of the native transport holds: on the heap and for its
// stack. It does not run beside other tests, because it measures the process. The sockets of the clients are in it.
func TestIdleMemory(t *testing.T) { //nolint:paralleltest // see above
	for _, test := range []struct {
		name     string
		version  uint16 // of TLS, 0 for plaintext
		mostHeap float64
	}{
		{name: "plaintext", mostHeap: 6_000},
		{name: "TLS 1.2", version: tls.VersionTLS12, mostHeap: 15_000},
		{name: "TLS 1.3", version: tls.VersionTLS13, mostHeap: 18_000},
	} {
		t.Run(test.name, func(t *testing.T) {
			native := func(s *settings.Settings) { s.Listeners.Transport = "native" }
			var address string
			var secured *tls.Config
			if test.version == 0 {
				address, _, _, _ = start(t, configured(native, func(s *settings.Settings) { s.Rules.Root = testenv.RulesRoot(t) }))
			} else {
				s := startSecured(t, native)
				address = s.grpc
				secured = s.client(s.ca.Issue(t, envoyID, time.Hour))
				secured.ServerName, secured.NextProtos = "127.0.0.1", []string{"h2"}
				secured.MinVersion, secured.MaxVersion = test.version, test.version
			}
			const connections, mostStack = 1000, 10_000 // the race detector doubles stacks
			for range 10 {
				openIdle(t, address, secured)
			}
			heapBefore, stacksBefore := inUse()
			for range connections {
				openIdle(t, address, secured)
			}
			heap, stacks := inUse()
			heap, stacks = (heap-heapBefore)/connections, (stacks-stacksBefore)/connections
			t.Logf("%.0f bytes of heap and %.0f of stack a connection", heap, stacks)
			if heap > test.mostHeap {
				t.Errorf("%.0f bytes of heap a connection, want at most %.0f", heap, test.mostHeap)
			}
			if stacks > mostStack {
				t.Errorf("%.0f bytes of stack a connection, want at most %d: it has grown and did not shrink",
					stacks, mostStack)
			}
		})
	}
}

// openIdle opens a connection until the test ends, and waits until the server has acknowledged the settings. It keeps
// only the socket: what else a client holds becomes garbage.
func openIdle(t *testing.T, address string, secured *tls.Config) {
	t.Helper()
	socket, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	conn := socket
	if secured != nil {
		conn = tls.Client(socket, secured)
	}
	framer := http2.NewFramer(conn, conn)
	_, err = io.WriteString(conn, http2.ClientPreface)
	err = errors.Join(err, framer.WriteSettings())
	for acknowledged := false; !acknowledged && err == nil; {
		var frame http2.Frame
		if frame, err = framer.ReadFrame(); err == nil {
			settings, ok := frame.(*http2.SettingsFrame)
			acknowledged = ok && settings.IsAck()
			if ok && !acknowledged {
				err = framer.WriteSettingsAck()
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// inUse returns the memory of the heap and of stacks in bytes. Several collections let stacks shrink.
func inUse() (heap, stacks float64) {
	const collections = 6
	for range collections {
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc), float64(stats.StackInuse)
}
