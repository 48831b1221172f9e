package h2unary_test

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/net/http2"
)

// TestTableSize has clients with a table of another size than the default. A client with a smaller one ends the
// connection unless the next header block begins with the new size (RFC 9113, 4.3.1), as nghttp2 does in Node.
func TestTableSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, later []uint32 // sizes before the first answer and after it
		updates      []bool   // whether the blocks of the next answer begin with a size
	}{
		{first: nil, updates: []bool{false}},
		{first: []uint32{4096}, updates: []bool{false}},
		{first: []uint32{65536}, updates: []bool{false}},
		{first: []uint32{0}, updates: []bool{true}},
		{first: []uint32{1000}, updates: []bool{true}},
		{first: []uint32{4095}, updates: []bool{true}},
		{first: []uint32{100, 4096}, updates: []bool{true}},
		{later: []uint32{1000}, updates: []bool{false, true}},
		{later: []uint32{0, 4096}, updates: []bool{false, true}},
	} {
		t.Run(fmt.Sprint(c.first, c.later), func(t *testing.T) {
			t.Parallel()
			s := start(t, nil, nil)
			p := connect(t, s, sizes(c.first)...)
			p.ReadMetaHeaders = nil
			got := []bool{p.beginsWithSize(1)}
			if c.later != nil {
				if err := p.WriteSettings(sizes(c.later)...); err != nil {
					t.Fatal(err)
				}
				got = append(got, p.beginsWithSize(3))
			}
			if !slices.Equal(got, c.updates) {
				t.Errorf("blocks begin with a size: %v, want %v", got, c.updates)
			}
		})
	}
}

func sizes(values []uint32) (settings []http2.Setting) {
	for _, value := range values {
		settings = append(settings, http2.Setting{ID: http2.SettingHeaderTableSize, Val: value})
	}
	return settings
}

// beginsWithSize makes a request, and reports whether the header block of the answer begins with the size 0. It reads
// the whole answer.
func (p *peer) beginsWithSize(id uint32) (begins bool) {
	p.Helper()
	if err := p.request(id, echoMethod, "x"); err != nil {
		p.Fatal(err)
	}
	for {
		f, ok := p.next().(*http2.HeadersFrame)
		switch {
		case !ok:
		case f.StreamEnded():
			return begins
		default:
			begins = f.HeaderBlockFragment()[0] == 0x20
		}
	}
}
