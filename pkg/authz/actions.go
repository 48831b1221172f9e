package authz

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/pkg/descriptors"
)

// facts are what actions look at.
type facts struct {
	request  *Request
	host     string // a Hostname
	query    string
	identity *Identity
	access   *Access
}

// descriptorsOf makes the descriptors of a request. A descriptor of which an action has nothing to give is left out.
func descriptorsOf(limits []RateLimit, f facts) []descriptors.Descriptor {
	var list []descriptors.Descriptor
	for i := range limits {
		limit := &limits[i]
		d := descriptors.Descriptor{Entries: make([]descriptors.Entry, 0, len(limit.Actions))}
		for k := range limit.Actions {
			entry, ok := limit.Actions[k].entry(f)
			if !ok {
				break
			}
			d.Entries = append(d.Entries, entry)
		}
		if len(d.Entries) < len(limit.Actions) {
			continue
		}
		if limit.Hits != (HitsAddend{}) {
			hits := limit.Hits.of(f.request)
			d.Hits = &hits
		}
		list = append(list, d)
	}
	return list
}

// of is the cost of a request. What a client states is at least 1: nobody sets his own price to nothing.
func (h HitsAddend) of(r *Request) uint64 {
	if h.Header != "" {
		text, _ := r.Headers.Get(h.Header)
		n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64) // the largest there is when it is larger than that
		if err == nil || errors.Is(err, strconv.ErrRange) {
			return max(1, n)
		}
	}
	if h.Extension != "" {
		if n, err := strconv.ParseUint(r.Extensions[h.Extension], 10, 64); err == nil {
			return n
		}
	}
	return max(1, h.Number)
}

// entry is what the action gives; ok is false when it has nothing.
func (a *Action) entry(f facts) (e descriptors.Entry, ok bool) {
	r := f.request
	switch {
	case a.GenericKey != nil:
		return descriptors.Entry{Key: orDefault(a.GenericKey.Key, "generic_key"), Value: a.GenericKey.Value}, true
	case a.RequestHeader != nil:
		value, ok := r.Headers.Get(a.RequestHeader.Header)
		return descriptors.Entry{Key: a.RequestHeader.Key, Value: value}, ok
	case a.RemoteAddress != nil:
		return a.RemoteAddress.entry(r), true
	case a.HeaderValueMatch != nil:
		m := a.HeaderValueMatch
		value, present := r.Headers.Get(m.Header)
		matched := present && (m.Pattern == "" || descriptors.Match(m.Pattern, value))
		return descriptors.Entry{Key: orDefault(m.Key, "header_match"), Value: m.Value}, matched != m.Not
	case a.QueryParameter != nil:
		values := queryValues(f.query, a.QueryParameter.Parameter)
		if len(values) == 0 {
			return e, false
		}
		return descriptors.Entry{Key: a.QueryParameter.Key, Value: values[0]}, true
	case a.Metadata != nil:
		value := metadataText(r.Metadata, a.Metadata.Path)
		value = orDefault(value, a.Metadata.Default)
		return descriptors.Entry{Key: a.Metadata.Key, Value: value}, value != ""
	case a.Credential != nil:
		value := orDefault(f.identity.field(a.Credential.Field), a.Credential.Default)
		return descriptors.Entry{Key: orDefault(a.Credential.Key, a.Credential.Field), Value: value}, value != ""
	case a.Method != nil:
		return descriptors.Entry{Key: orDefault(a.Method.Key, "method"), Value: r.Method}, r.HTTP
	case a.Host != nil:
		return descriptors.Entry{Key: orDefault(a.Host.Key, "host"), Value: f.host}, r.HTTP
	case a.Path != nil:
		return descriptors.Entry{Key: orDefault(a.Path.Key, "path"), Value: f.access.Path.text()}, r.HTTP
	}
	return e, false
}

func orDefault(s, byDefault string) string {
	if s == "" {
		return byDefault
	}
	return s
}

// unknownAddress is the value for a client without an IP address, such as one on a Unix socket or an internal listener of Envoy's, so
// that a rule for all addresses holds for it, too.
const unknownAddress = "unknown"

// defaultIPv6Mask is the network of one customer: a client with one address in it has all of them.
const defaultIPv6Mask = 64

// entry gives the address of the client, or its network.
func (a *RemoteAddress) entry(r *Request) descriptors.Entry {
	key := "remote_address"
	if a.IPv4Mask > 0 || a.IPv6Mask > 0 {
		key = "masked_remote_address"
	}
	return descriptors.Entry{Key: orDefault(a.Key, key), Value: a.value(r)}
}

func (a *RemoteAddress) value(r *Request) string {
	address, err := netip.ParseAddr(a.client(r))
	if err != nil {
		return unknownAddress
	}
	address = address.Unmap().WithZone("")
	bits := a.IPv4Mask
	if address.Is6() {
		bits = cmp.Or(a.IPv6Mask, defaultIPv6Mask)
	}
	if bits == 0 {
		return address.String()
	}
	network, err := address.Prefix(bits)
	if err != nil {
		return unknownAddress
	}
	return network.String()
}

// client is the peer, or what the trusted proxies have written into x-forwarded-for, each at the right end: with one trusted hop
// the last address, with two the one before. A list that is too short, or holds no address there, did not come through them.
func (a *RemoteAddress) client(r *Request) string {
	if a.TrustedHops == 0 {
		return r.Source
	}
	list, _ := r.Headers.Get("x-forwarded-for")
	hops := strings.Split(list, ",")
	if len(hops) < a.TrustedHops {
		return r.Source
	}
	address := strings.TrimSpace(hops[len(hops)-a.TrustedHops])
	if _, err := netip.ParseAddr(address); err != nil {
		return r.Source
	}
	return address
}

// metadataText is the text at a path in metadata: of strings, numbers and bools.
func metadataText(metadata map[string]map[string]any, path []string) string {
	if len(path) < 2 {
		return ""
	}
	return textAt(metadata[path[0]], path[1:])
}

func textAt(at map[string]any, path []string) string {
	for i, name := range path {
		if i == len(path)-1 {
			return plainText(at[name])
		}
		at, _ = at[name].(map[string]any)
	}
	return ""
}

func plainText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool, int, int64, uint64:
		return fmt.Sprint(v)
	}
	return ""
}

// field is what the credential says under a name of CredentialAction; "" for nothing.
func (id *Identity) field(name string) string {
	switch name {
	case "owner":
		return id.Owner
	case "plan":
		return id.Plan
	case "key_id":
		return id.KeyID
	case "method":
		return id.Method
	}
	if label, ok := strings.CutPrefix(name, "label."); ok {
		return id.Labels[label]
	}
	if claim, ok := strings.CutPrefix(name, "claim."); ok {
		if text := plainText(id.Claims[claim]); text != "" {
			return text
		}
		return textAt(id.Claims, strings.Split(claim, "."))
	}
	return ""
}
