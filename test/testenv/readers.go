package testenv

import (
	"math/bits"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// HostReaders returns the ways in which upstreams read the name from a Host header, each under its description. Names
// are in lower case without a final dot. IPv6 addresses are in their shortest form, without brackets.
func HostReaders() map[string]func(host string) (name string) {
	firstColon := func(host string) string { // nginx, and split(':')[0] in any language
		if strings.HasPrefix(host, "[") {
			address, _, _ := strings.Cut(host, "]")
			return address
		}
		name, _, _ := strings.Cut(host, ":")
		return name
	}
	readers := map[string]func(string) string{
		"cuts at the first colon": firstColon,
		"cuts at the last colon": func(host string) string {
			if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
				return host[:i]
			}
			return host
		},
		"reads the last of a list": func(host string) string {
			return firstColon(host[strings.LastIndexByte(host, ',')+1:])
		},
		"drops a user name": func(host string) string {
			return firstColon(host[strings.LastIndexByte(host, '@')+1:])
		},
		"parses a URL": func(host string) string { // net/url in Go, new URL() in JavaScript
			u, err := url.Parse("http://" + host + "/")
			if err != nil {
				return ""
			}
			return u.Hostname()
		},
	}
	for does, read := range readers {
		readers[does] = func(host string) string {
			name := strings.TrimRight(strings.ToLower(strings.Trim(read(host), "[]")), ".")
			if ip, err := netip.ParseAddr(name); err == nil {
				return ip.String()
			}
			return name
		}
	}
	return readers
}

// PathReaders returns the ways in which upstreams read a path without its query, each under its description. A place
// is the path that the upstream acts on; it has no slash at its end. All readers treat backslashes as slashes, merge
// slashes and resolve dot segments. All drop parameters (`;`) and everything after a zero byte. They differ in how
// they decode, and when.
func PathReaders() map[string]func(received string) (place string) {
	return map[string]func(string) string{
		"decodes once":                      func(p string) string { return place(decode(p)) },
		"decodes twice":                     func(p string) string { return place(decode(decode(p))) },
		"decodes three times":               func(p string) string { return place(decode(decode(decode(p)))) },
		"resolves, decodes, resolves again": func(p string) string { return place(decode(place(p))) },
		"resolves between two decodings":    func(p string) string { return place(decode(place(decode(p)))) },
		"accepts overlong UTF-8":            func(p string) string { return place(lenientUTF8(decode(p))) },
		"decodes %uXXXX":                    func(p string) string { return place(decodeU(decode(p))) },
		"drops invisible characters":        func(p string) string { return place(dropInvisible(decode(p))) },
		"accepts compatibility forms":       func(p string) string { return place(decode(compatible(decode(p)))) },
	}
}

var (
	percent  = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	percentU = regexp.MustCompile(`%[uU][0-9A-Fa-f]{4}`)
)

// decode decodes percent-encodings. Invalid ones stay as they are.
func decode(p string) string {
	return percent.ReplaceAllStringFunc(p, func(encoded string) string {
		c, _ := url.PathUnescape(encoded) // it is valid
		return c
	})
}

// decodeU decodes %u002e, as IIS and JavaScript's function unescape do.
func decodeU(p string) string {
	return percentU.ReplaceAllStringFunc(p, func(encoded string) string {
		c, _ := strconv.ParseUint(encoded[2:], 16, 32) // it is valid
		return string(rune(c))
	})
}

// dropInvisible removes spaces and invisible characters from segments that are dot segments or empty without them.
func dropInvisible(p string) string {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		visible := strings.Map(func(c rune) rune {
			if unicode.IsSpace(c) || unicode.In(c, unicode.Cf, unicode.Variation_Selector) {
				return -1
			}
			return c
		}, s)
		if visible == "" || visible == "." || visible == ".." {
			segments[i] = visible
		}
	}
	return strings.Join(segments, "/")
}

// compatible replaces fullwidth and other compatibility forms of the characters that structure a path.
func compatible(p string) string {
	var b strings.Builder
	for _, c := range p {
		if form := norm.NFKC.String(string(c)); strings.ContainsAny(form, `./\%;?#`) {
			b.WriteString(form)
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

func place(p string) string {
	segments := strings.Split(strings.ReplaceAll(p, `\`, "/"), "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
		segments[i], _, _ = strings.Cut(segments[i], "\x00")
	}
	return path.Clean("/" + strings.Join(segments, "/"))
}

// lenientUTF8 reads UTF-8 as old decoders do: it accepts sequences that are overlong or incomplete.
func lenientUTF8(p string) string {
	var b []byte
	for len(p) > 0 {
		size, c := 1, rune(p[0])
		if ones := min(bits.LeadingZeros8(^p[0]), 6); ones > 1 { // the first byte of a sequence
			size, c = min(ones, len(p)), c&(0x7f>>ones)
		}
		for _, next := range []byte(p[1:size]) {
			c = c<<6 | rune(next&0x3f)
		}
		b = utf8.AppendRune(b, c)
		p = p[size:]
	}
	return string(b)
}
