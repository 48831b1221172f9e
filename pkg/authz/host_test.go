package authz

import (
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// FuzzHostname: every upstream reads an accepted host as this service does.
func FuzzHostname(f *testing.F) {
	for _, host := range []string{
		"a.example", "a.example:80", "A.example.:80", "a_b", "192.0.2.1:80", "[2001:db8::1]:80", "[::ffff:192.0.2.1]",
		"xn--bcher-kva", "a.example:80:80", "a::", "a:", ":80", "u:p@a:80", "a,b", "a%2e", "a..", "[a]",
		"[::1%25eth0]", "[::1]a", "0x7f.1", "a\u212a", "",
	} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name, ok := hostname(host)
		if !ok {
			return
		}
		if again, ok := hostname(inBrackets(name)); !ok || again != name {
			t.Errorf("%q is read as %q, and that as %q, %t", host, name, again, ok)
		}
		if strings.ContainsAny(host, "@,%/\\?#; \t\r\n\x00") || len(host) != len([]rune(host)) {
			t.Errorf("%q is accepted", host)
		}
		for does, read := range testenv.HostReaders() {
			if got := read(host); got != name {
				t.Errorf("one that %s reads %q as %q, and this service as %q", does, host, got, name)
			}
		}
	})
}

// inBrackets returns a name in the form of a host.
func inBrackets(name string) string {
	if strings.Contains(name, ":") {
		return "[" + name + "]"
	}
	return name
}
