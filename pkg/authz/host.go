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
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	last := ""
	for last = range strings.SplitSeq(name, ".") {
		if last == "" || strings.Trim(last, letters) != "" {
			return false
		}
	}
	if !isNumber(strings.ToLower(last)) {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// isNumber reports whether a label consists of decimal digits, or of 0x and hexadecimal digits.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
