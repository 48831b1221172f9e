package loadgen

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2/hpack"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestBlocksOfEnvoy compares the header blocks with those of a real Envoy, with and without tracing: the names of the
// fields, their order, and how HPACK has each of them.
func TestBlocksOfEnvoy(t *testing.T) {
	t.Parallel()
	const tracing = `{random_sampling: {value: 100}, provider: {name: envoy.tracers.opentelemetry, typed_config: ` +
		`{"@type": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig, service_name: envoy, ` +
		`grpc_service: {envoy_grpc: {cluster_name: traces}}}}}`
	for client, config := range map[Client]string{Envoy: "null", Traced: tracing} {
		t.Run(string(client), func(t *testing.T) {
			t.Parallel()
			service := serve(t, func(p *peer) { p.answerAll(denied) })
			_, text, _ := net.SplitHostPort(service.address)
			var port int
			if _, err := fmt.Sscan(text, &port); err != nil {
				t.Fatal(err)
			}
			envoy := testenv.Envoy(t, strings.Replace(testenv.RepoFile(t, "tools/loadgen/testdata/envoy.yaml"), "TRACING",
				config, 1), testenv.Ports{10000: 0, 8081: port})
			for range 3 {
				resp, err := http.Get("http://" + envoy.Listener("http") + "/")
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
			own := newBlocks(&Plan{Client: client, Address: "extauthz", Timeout: 500 * time.Millisecond,
				Message: Message{path: "/envoy.service.auth.v3.Authorization/Check"}}, &lane{})
			decoder := newReader()
			var want []string
			for range 3 {
				want = append(want, decoder.read(t, own.next()))
			}
			var got []string
			testenv.Eventually(t, func() error { // also after Envoy has given up a call
				if got = service.blocksOf("/envoy.service.auth.v3.Authorization/Check"); len(got) < 3 {
					return fmt.Errorf("%d blocks", len(got))
				}
				return nil
			}, "the blocks of three calls")
			if diff := cmp.Diff(want, got[:3]); diff != "" {
				t.Errorf("Envoy sends other blocks (-own +Envoy):\n%s", diff)
			}
		})
	}
}

// TestBlocks decodes many blocks of each kind of client.
func TestBlocks(t *testing.T) {
	t.Parallel()
	for _, client := range Clients {
		b, decoder := newBlocks(&Plan{Client: client, Address: "host:1", Timeout: time.Second,
			Message: Message{path: "/a.B/C"}}, &lane{}), newReader()
		seen := map[string]bool{}
		for range 1000 { // the table of HPACK overflows many times
			block := slices.Clone(b.next())
			seen[string(block)] = true
			decoder.read(t, block)
			for _, want := range [][2]string{{":method", "POST"}, {":path", "/a.B/C"}, {":authority", "host:1"},
				{"te", "trailers"}} {
				if decoder.fields[want[0]] != want[1] {
					t.Fatalf("%s: %q, want %q", client, decoder.fields, want)
				}
			}
		}
		if different := len(seen); (different == 2) != (client == Envoy || client == Indexed) {
			t.Errorf("%s: %d different blocks", client, different)
		}
		b.limitTable(0)
		decoder.decoder.SetAllowedMaxDynamicTableSize(0)
		for range 3 {
			if text := decoder.read(t, slices.Clone(b.next())); strings.Contains(text, "te indexed") {
				t.Errorf("%s: without a table: %s", client, text)
			}
		}
	}
}

// reader decodes the header blocks of one connection.
type reader struct {
	decoder *hpack.Decoder
	names   []string
	fields  map[string]string
}

func newReader() *reader {
	r := &reader{fields: map[string]string{}}
	r.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		r.names = append(r.names, f.Name)
		r.fields[f.Name] = f.Value
	})
	return r
}

// read returns the fields of a block with how HPACK has them.
func (r *reader) read(t testing.TB, block []byte) string {
	t.Helper()
	r.names = nil
	_, err := r.decoder.Write(block)
	if err = errors.Join(err, r.decoder.Close()); err != nil {
		t.Errorf("%x: %v", block, err)
		return ""
	}
	var b strings.Builder
	for _, kind := range instructions(block) {
		if kind == "size" {
			continue
		}
		fmt.Fprintf(&b, "%s %s, ", r.names[0], kind)
		r.names = r.names[1:]
	}
	return b.String()
}

// instructions returns the kind of each instruction of a block (RFC 7541, 6).
func instructions(block []byte) (kinds []string) {
	number := func(bits int) int {
		most := 1<<bits - 1
		n := int(block[0]) & most
		block = block[1:]
		for shift := 0; n >= most; shift += 7 {
			b := block[0]
			block = block[1:]
			n += int(b&127) << shift
			if b < 128 {
				break
			}
		}
		return n
	}
	text := func() { n := number(7); block = block[n:] }
	literal := func(kind string, bits int) {
		kinds = append(kinds, kind)
		if number(bits) == 0 {
			text()
		}
		text()
	}
	for len(block) > 0 {
		switch b := block[0]; {
		case b&0x80 != 0:
			kinds = append(kinds, "indexed")
			number(7)
		case b&0x40 != 0:
			literal("added", 6)
		case b&0x20 != 0:
			kinds = append(kinds, "size")
			number(5)
		case b&0x10 != 0:
			literal("never indexed", 4)
		default:
			literal("not indexed", 4)
		}
	}
	return kinds
}
