package loadgen

import (
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// BenchmarkRun measures the generator together with a server that does as little as possible: it reads all requests of
// a read, and answers them in one write.
func BenchmarkRun(b *testing.B) {
	for _, name := range ClientNames() {
		b.Run(name, func(b *testing.B) {
			client, err := ParseClient(name)
			if err != nil {
				b.Fatal(err)
			}
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

// answerBatches answers all requests of one read in one write, and gives back the window.
func (p *peer) answerBatches() {
	out := &batch{}
	answers := &peer{Framer: http2.NewFramer(out, nil)}
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	_ = p.WriteWindowUpdate(0, 1<<30)
	p.SetReuseFrames()
	taken := 0
	for {
		frame, err := p.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = p.WriteSettingsAck()
			}
		case *http2.DataFrame:
			if taken += int(f.Length); taken > 1<<28 {
				_ = p.WriteWindowUpdate(0, uint32(taken))
				taken = 0
			}
			allowed(answers, f.StreamID)
			if p.in.Buffered() == 0 {
				if _, err := p.conn.Write(out.bytes); err != nil {
					return
				}
				out.bytes = out.bytes[:0]
			}
		}
	}
}

type batch struct{ bytes []byte }

func (b *batch) Write(p []byte) (int, error) {
	b.bytes = append(b.bytes, p...)
	return len(p), nil
}
