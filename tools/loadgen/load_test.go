package loadgen

import (
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// BenchmarkRun measures the generator together with a server that does as little as possible: it reads all requests of
// a read, and answers them in one write.
func BenchmarkRun(b *testing.B) {
	for _, client := range Clients {
		b.Run(string(client), func(b *testing.B) {
			p := plan(b, serve(b, func(p *peer) { p.answerBatches() }).address)
			p.Client, p.Count, p.InFlight, p.Connections, p.Duration = client, b.N, 64, 4, time.Minute
			b.ReportAllocs()
			b.ResetTimer()
			r, err := Run(b.Context(), p)
			if err != nil || r.Answers != int64(b.N) {
				b.Fatalf("%+v, %v", r, err)
			}
		})
	}
}

// answerBatches answers all requests of one read in one write, and gives back the window. As with other servers, all
// blocks but the first have only indexes.
func (p *peer) answerBatches() {
	in, out := input{buffer: make([]byte, 64<<10)}, []byte(nil)
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	_ = p.WriteWindowUpdate(0, 1<<30)
	_ = p.WriteSettingsAck()
	const ok, status, statusAgain = "\x88", "\x40\x0bgrpc-status\x010", "\xbe"
	trailer, taken := status, 0
	for {
		n, err := p.in.Read(in.room())
		if err != nil {
			return
		}
		in.to += n
		for out = out[:0]; ; {
			raw := in.next()
			if raw == nil {
				break
			}
			f, _ := readFrame(raw)
			if f.kind != http2.FrameData {
				continue
			}
			if taken += len(f.payload); taken > 1<<28 {
				_ = p.WriteWindowUpdate(0, uint32(taken)) // an error ends the next write, too
				taken = 0
			}
			out = appendFrame(out, http2.FrameHeaders, http2.FlagHeadersEndHeaders, f.stream, []byte(ok))
			out = appendFrame(out, http2.FrameData, 0, f.stream, okMessage)
			out = appendFrame(out, http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, f.stream,
				[]byte(trailer))
			trailer = statusAgain
		}
		if _, err := p.conn.Write(out); err != nil {
			return
		}
	}
}
