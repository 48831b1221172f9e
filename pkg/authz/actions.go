package authz

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/networks"
)

type facts struct {
	request  *Request
	host     string // a hostname
	query    string
	path     string // a result of plainPath
	decision *Decision
	access   *accessRule
	shadow   *accessRule // the first rule that would decide if it were enforced; nil for none
}

// descriptorMaker is a compiled RateLimit.
type descriptorMaker struct {
	actions []entryMaker
	cost    *price
	hold    string // the header with the id of the hold, in lower case; "" for none
}

// entryMaker is a compiled Action. It gives the entry (key, value).
type entryMaker struct {
	key string
	// fixed is the value if it is always the same, else "".
	fixed string
	// always means that each request has the entry.
	always bool
	// field is the field of a credential that the value is, "" for another action.
	field string
	// value returns the value for a request; ok is false if there is none, so that no descriptor is made.
	value func(f *facts) (value string, ok bool)
}

// ofCredential reports whether the value is a field of a credential.
func (e entryMaker) ofCredential() bool { return e.field != "" }

func compileLimits(limits []RateLimit, tables *networks.Tables) []descriptorMaker {
	makers := make([]descriptorMaker, len(limits))
	for i := range limits {
		makers[i].cost = limits[i].Cost.compile()
		if hold := limits[i].Hold; hold != nil {
			makers[i].hold = strings.ToLower(text(hold.RequestHeader))
		}
		for k := range limits[i].Actions {
			makers[i].actions = append(makers[i].actions, limits[i].Actions[k].compile(tables))
		}
	}
	return makers
}

// describe adds the descriptors of a request to its query, except those with an action that has no value.
func (p *Pending) describe(limits []descriptorMaker) {
	for i := range limits {
		limit := &limits[i]
		begin := len(p.entries)
		for k := range limit.actions {
			action := &limit.actions[k]
			value, ok := action.value(&p.facts)
			if !ok {
				break
			}
			p.entries = append(p.entries, descriptors.Entry{Key: action.key, Value: value})
		}
		end := len(p.entries)
		if end-begin < len(limit.actions) {
			p.entries = p.entries[:begin]
			continue
		}
		if limit.hold != "" { // without the header, the id is empty: the limiter then makes one
			id, _ := p.facts.request.Headers.Get(limit.hold)
			p.entries = append(p.entries, descriptors.Entry{Key: descriptors.HoldReserve, Value: id})
			end++
		}
		hits := limit.cost.of(&p.facts)
		if p.Query.Dry { // the quota is what is left, so its reading asks for nothing
			hits = new(uint64)
		}
		p.Query.Descriptors = append(p.Query.Descriptors, descriptors.Descriptor{
			Entries: p.entries[begin:end:end], Hits: hits,
		})
	}
}

// compile returns the compiled action. Its key is "" if the action has neither a key nor a default for it.
func (a *Action) compile(tables *networks.Tables) (e entryMaker) {
	switch {
	case a.Credential != nil:
		field, byDefault := a.Credential.Field, a.Credential.Default
		e.field = field.String()
		e.key = textOr(a.Credential.Key, e.field)
		read := readField(cmp.Or(field, new(credential.Path)))
		e.value = func(f *facts) (string, bool) {
			value := cmp.Or(read(f.decision), byDefault)
			return value, value != ""
		}
	case a.RequestHeaders != nil:
		header := strings.ToLower(text(a.RequestHeaders.Header))
		e.key = text(a.RequestHeaders.Key)
		e.value = func(f *facts) (string, bool) { return f.request.Headers.Get(header) }
	case a.RemoteAddress != nil:
		return a.RemoteAddress.compile(tables)
	case a.GenericKey != nil:
		value := text(a.GenericKey.Value)
		e.key, e.fixed, e.always = textOr(a.GenericKey.Key, "generic_key"), value, true
		e.value = func(*facts) (string, bool) { return value, true }
	case a.HeaderValueMatch != nil:
		m := *a.HeaderValueMatch
		header, value := strings.ToLower(text(m.Header)), text(m.Value)
		e.key, e.fixed = textOr(m.Key, "header_match"), value
		e.value = func(f *facts) (string, bool) {
			sent, present := f.request.Headers.Get(header)
			matched := present && (m.Pattern == nil || descriptors.Match(*m.Pattern, sent))
			return value, matched != m.Invert
		}
	case a.QueryParameter != nil:
		parameter := text(a.QueryParameter.Parameter)
		e.key = text(a.QueryParameter.Key)
		e.value = func(f *facts) (string, bool) {
			value, count := firstOf(queryValues(f.query, parameter))
			return value, count > 0
		}
	case a.Metadata != nil:
		path, byDefault := a.Metadata.Path, a.Metadata.Default
		e.key = text(a.Metadata.Key)
		e.value = func(f *facts) (string, bool) {
			value := cmp.Or(f.request.metadata(path), byDefault)
			return value, value != ""
		}
	case a.Method != nil:
		e.key = textOr(a.Method.Key, "method")
		e.value = func(f *facts) (string, bool) { return registered(f.request.Method), f.request.HTTP }
	case a.Host != nil:
		e.key = textOr(a.Host.Key, "host")
		e.value = func(f *facts) (string, bool) { return f.host, f.request.HTTP }
	case a.Path != nil:
		e.key = textOr(a.Path.Key, "path")
		e.value = func(f *facts) (string, bool) { return f.access.path.text, f.request.HTTP }
	default:
		e.value = func(*facts) (string, bool) { return "", false }
	}
	return e
}

// textOr returns a text, or another one if it is absent.
func textOr(s *string, other string) string {
	if s == nil {
		return other
	}
	return *s
}

// unknownAddress is the value for a client without an IP address. So a rule for all addresses also limits that client.
const unknownAddress = "unknown"

// defaultIPv6Mask is the length of the prefix of one customer, who can use all addresses with it.
const defaultIPv6Mask = 64

func (a *RemoteAddress) compile(tables *networks.Tables) entryMaker {
	if len(a.Networks) > 0 {
		return a.compileNetworks(tables.Of(a.Networks...))
	}
	key := "remote_address"
	v4, v6, hops := a.IPv4Mask, a.IPv6Mask, a.TrustedHops
	if v4 > 0 && v4 <= 32 || v6 > 0 && v6 <= 128 {
		key = "masked_remote_address"
	}
	v6 = cmp.Or(v6, defaultIPv6Mask)
	value := func(f *facts) (string, bool) {
		value := network(f.request.client(hops), v4, v6)
		return value, value != unknownAddress || !f.showsOwnQuota()
	}
	return entryMaker{key: textOr(a.Key, key), value: value}
}

// showsOwnQuota reports whether the client reads its quota. Then the bucket of clients without an address must not
// stand in place of the client's own. A refusal still has a limit.
func (f *facts) showsOwnQuota() bool {
	return f.request.Quota == QuotaAlways && f.decision.Verdict == Allowed
}

// compileNetworks returns the compiled action with Networks, whose table it is given.
func (a *RemoteAddress) compileNetworks(table *networks.Table) entryMaker {
	value := func(f *facts) (string, bool) {
		client := f.request.client(a.TrustedHops)
		if i, ok := table.Find(client); ok {
			return a.Networks[i], true
		}
		return a.Default, a.Default != "" && (!f.showsOwnQuota() || network(client, 0, 0) != unknownAddress)
	}
	return entryMaker{key: textOr(a.Key, "network"), value: value}
}

// network returns the network of an address, or the address itself if its mask is 0.
func network(client string, v4, v6 int) string {
	address, err := netip.ParseAddr(client)
	if err != nil {
		return unknownAddress
	}
	if address.Is4() && v4 == 0 {
		return client // it has only this form
	}
	address = address.Unmap().WithZone("")
	bits := v4
	if address.Is6() {
		bits = v6
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

// client returns the address of the client. Without trusted hops, that is the peer. Each trusted proxy appends one
// address to x-forwarded-for: with one hop the client is the last address, with two the one before. A list that is too
// short, or has no address there, did not come through these proxies; then the client is the peer.
func (r *Request) client(trustedHops int) string {
	if trustedHops <= 0 {
		return r.Source
	}
	list, _ := r.Headers.Get(forwardedFor)
	hops := strings.Split(list, ",")
	if len(hops) < trustedHops {
		return r.Source
	}
	address := strings.TrimSpace(hops[len(hops)-trustedHops])
	if _, err := netip.ParseAddr(address); err != nil {
		return r.Source
	}
	return address
}

// metadata returns what is at a path of the metadata as a text, "" for none.
func (r *Request) metadata(path []string) string {
	if r.Metadata == nil {
		return ""
	}
	return plainText(r.Metadata.At(path))
}

// plainText returns a string, number or bool as a text; "" for another value.
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

// readField returns a function that reads a field of a credential, "" for none. It notes claims that the token lacks.
func readField(field *credential.Path) func(d *Decision) string {
	name := field.String()
	switch name {
	case "owner":
		return func(d *Decision) string { return d.Identity.Owner }
	case "plan":
		return func(d *Decision) string { return d.Identity.Plan }
	case "key_id":
		return func(d *Decision) string { return d.Identity.KeyID }
	case "method":
		return func(d *Decision) string { return d.Identity.Method }
	}
	kind, name, _ := strings.Cut(name, ".")
	switch kind {
	case "label":
		return func(d *Decision) string { return d.Identity.Labels[name] }
	case "claim":
		claim := field.After()
		return func(d *Decision) string {
			value := plainText(claim.In(d.Identity.Claims))
			if value == "" && d.Identity.Claims != nil && !slices.Contains(d.Absent, name) {
				d.Absent = append(d.Absent, name)
			}
			return value
		}
	}
	return func(*Decision) string { return "" }
}
