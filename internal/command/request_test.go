package command

import "testing"

func TestDescriptor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"k=v": "k=v;", "k=": "k=;", "k=v,l=w": "k=v;l=w;", "path=/a?b=c": "path=/a?b=c;",
		"": "", "k": "", "=v": "", "k=v,": "",
	} {
		got := ""
		d, err := Descriptor(text)
		for _, e := range d.GetEntries() {
			got += e.GetKey() + "=" + e.GetValue() + ";"
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}
