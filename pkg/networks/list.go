package networks

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// List is an element of `networks:` as a source has it: a list of texts, or a map that names a file with such texts.
type List struct {
	File string `yaml:"file" required:"true" doc:"A file in the directory of the rule file, with one prefix in each line." example:"partners.txt"`
	// Prefixes are the texts of the list, nil for a File.
	Prefixes []string
	// Position is the position of the list, "file:line", for messages.
	Position string
}

// UnmarshalList sets the texts of the list.
func (l *List) UnmarshalList(texts []string) { l.Prefixes = texts }

// Lists are lists of prefixes by name. They do not change after they were made.
type Lists map[string][]netip.Prefix

// Unknown returns the mistake in a name that no list has, nil for the name of a list.
func (l Lists) Unknown(name string) *suggest.Mistake {
	if _, known := l[name]; known {
		return nil
	}
	names := slices.Sorted(maps.Keys(l))
	hint := "add it at the top level: " + suggest.Quoted("networks: {"+name+": [10.0.0.0/8]}")
	if len(names) > 0 {
		const most = 10
		hint = "`networks` has " + suggest.List(names[:min(len(names), most)], " and ")
	}
	return &suggest.Mistake{
		Message: "unknown network " + suggest.Quoted(name), Hints: []string{suggest.DidYouMean(name, names), hint},
	}
}

// Longest returns the longest prefix of a list that has the address or network in a text. It tries all prefixes.
func (l Lists) Longest(name, text string) (longest netip.Prefix, found bool) {
	value, ok := parse(text)
	for _, p := range l[name] {
		if ok && p.Bits() <= value.Bits() && p.Contains(value.Addr()) && (!found || p.Bits() > longest.Bits()) {
			longest, found = p, true
		}
	}
	return longest, found
}

// Read returns the prefixes in texts, of which it skips empty ones. It reports each mistake with the index of its text.
func Read(texts []string, report func(i int, m suggest.Mistake)) []netip.Prefix {
	prefixes, known := make([]netip.Prefix, 0, len(texts)), make(map[netip.Prefix]bool, len(texts))
	for i, text := range texts {
		if text == "" {
			continue
		}
		p, message, hint := readPrefix(text)
		switch {
		case message != "":
			report(i, suggest.Mistake{Message: message, Hints: []string{hint}})
		case known[p]:
			message = suggest.Quoted(p.String()) + " is in this list twice"
			report(i, suggest.Mistake{Warning: true, Message: message, Hints: []string{"delete one of them"}})
		default:
			known[p] = true
			prefixes = append(prefixes, p)
		}
	}
	return prefixes
}

// readPrefix reads an element of a list. An address is a prefix that has only this address. message is the mistake, ""
// for none.
func readPrefix(text string) (p netip.Prefix, message, hint string) {
	p, err := netip.ParsePrefix(text)
	if address, addressErr := netip.ParseAddr(text); addressErr == nil {
		if address.Zone() != "" {
			return p, suggest.Quoted(text) + " has a zone", "write " + suggest.Quoted(address.WithZone("").String())
		}
		p, err = netip.PrefixFrom(address, address.BitLen()), nil
	}
	switch plain := unmapped(p); {
	case err != nil:
		return p, suggest.Quoted(text) + " is no prefix",
			"want one such as `10.0.0.0/8` or `2001:db8::/32`, or an address"
	case plain != p:
		return p, suggest.Quoted(text) + " is an IPv4 network in the form of IPv6",
			"write " + suggest.Quoted(plain.Masked().String()) + ": it also matches addresses of that form"
	case p != p.Masked():
		return p, fmt.Sprintf("%s has bits beyond the first %d", suggest.Quoted(text), p.Bits()),
			"write " + suggest.Quoted(p.Masked().String()) + " for the network, or " + suggest.Quoted(p.Addr().String()) +
				" for one address"
	}
	return p, "", ""
}

// unmapped returns a prefix of IPv4-mapped addresses (RFC 4291, 2.5.5.2) as one of IPv4, and any other as it is.
func unmapped(p netip.Prefix) netip.Prefix {
	const mapped = 96 // the length of ::ffff:0:0/96
	if p.Addr().Is4In6() && p.Bits() >= mapped {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	return p
}

// longestText is the length of the longest text of a prefix.
const longestText = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255/128")

// errAddress is any error of parseAddress. Those of netip would allocate for each network.
var errAddress = errors.New("no address")

// parseAddress reads an address, and ignores the zone that an IPv6 address can have.
func parseAddress(text string) (netip.Addr, error) {
	if address, zone, zoned := strings.Cut(text, "%"); zoned {
		if zone == "" || strings.Contains(zone, "/") || !strings.Contains(address, ":") {
			return netip.Addr{}, errAddress
		}
		text = address
	}
	if len(text) > longestText || strings.IndexByte(text, '/') >= 0 {
		return netip.Addr{}, errAddress
	}
	address, err := netip.ParseAddr(text)
	return address.Unmap(), err
}

// parse reads the address or the network in the value of an entry. It does not allocate if there is one.
func parse(text string) (p netip.Prefix, ok bool) {
	if address, err := parseAddress(text); err == nil {
		return netip.PrefixFrom(address, address.BitLen()), true
	}
	if len(text) > longestText || strings.IndexByte(text, '/') < 0 {
		return p, false
	}
	p, err := netip.ParsePrefix(text) // never with a zone
	return unmapped(p).Masked(), err == nil
}
