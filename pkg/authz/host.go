package authz

import (
	"net/netip"
	"strconv"
	"strings"
)

// hostname returns the name in a host in the form for rules: in lower case, without port and final dot. An IPv6 address
// has no brackets and its shortest form (RFC 5952). ok is false for a host that is not `name`, `name:port`, `[IPv6]` or
// `[IPv6]:port`. Such a host must be refused, because upstreams read it differently: nginx cuts `a:80:80` at the first
// colon, others at the last one or not at all. Some also decode `user@a`, `a%2eb` or `0x7f.1`.
func hostname(host string) (name string, ok bool) {
	if address, found := strings.CutPrefix(host, "["); found {
		address, port, closed := strings.Cut(address, "]")
		ip, err := netip.ParseAddr(address)
		return ip.String(), closed && err == nil && ip.Is6() && ip.Zone() == "" && isPortSuffix(port)
	}
	name, _, _ = strings.Cut(host, ":")
	if !isPortSuffix(host[len(name):]) {
		return "", false
	}
	name = strings.TrimSuffix(name, ".")
	return strings.ToLower(name), isName(name)
}

// isPortSuffix reports whether s is empty, or a colon and a port.
func isPortSuffix(s string) bool {
	digits, ok := strings.CutPrefix(s, ":")
	if !ok {
		return s == ""
	}
	_, err := strconv.ParseUint(digits, 10, 16)
	return err == nil && len(digits) <= len("65535")
}

// isName reports whether name is a DNS name, underscores allowed, or an IPv4 address in its usual form. It refuses
// 127.1 and 0x7f000001, which are addresses to URL parsers (WHATWG URL, "ends in a number").
func isName(name string) bool {
	last := 0 // where the last label begins
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.' && i > last:
			last = i + 1
		case !inHost[c]: // also the dot after an empty label
			return false
		}
	}
	if last == len(name) {
		return false
	}
	if !isNumber(name[last:]) {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// inHost has the characters of the labels of a name.
var inHost = charactersOf("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")

// charactersOf returns a table of the characters in a text of ASCII.
func charactersOf(text string) (table [256]bool) {
	for _, c := range []byte(text) {
		table[c] = true
	}
	return table
}

// isNumber reports whether a label consists of decimal digits, or of 0x and hexadecimal digits.
func isNumber(label string) bool {
	if label[0] < '0' || label[0] > '9' {
		return false
	}
	if hex, ok := strings.CutPrefix(strings.ToLower(label), "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
