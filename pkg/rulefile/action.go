package rulefile

import (
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
)

// action makes what gives one entry of a descriptor. All defaults are filled in.
func (b builder) action(a actionKeys) authz.Action {
	b.exactlyOne("an element of `actions`", a.at,
		chosen("credential", a.credential), chosen("request_headers", a.requestHeaders), chosen("remote_address", a.remoteAddress),
		chosen("generic_key", a.genericKey), chosen("header_value_match", a.headerValueMatch), chosen("query_parameter", a.queryParameter),
		chosen("metadata", a.metadata), chosen("method", a.method), chosen("host", a.host), chosen("path", a.path))
	switch {
	case a.genericKey.set:
		return authz.Action{GenericKey: b.genericKey(a.genericKey)}
	case a.requestHeaders.set:
		return authz.Action{RequestHeader: b.requestHeader(a.requestHeaders)}
	case a.remoteAddress.set:
		return authz.Action{RemoteAddress: b.remoteAddress(a.remoteAddress)}
	case a.headerValueMatch.set:
		return authz.Action{HeaderValueMatch: b.headerValueMatch(a.headerValueMatch)}
	case a.queryParameter.set:
		return authz.Action{QueryParameter: b.queryParameter(a.queryParameter)}
	case a.metadata.set:
		return authz.Action{Metadata: b.metadata(a.metadata)}
	case a.credential.set:
		return authz.Action{Credential: b.credentialAction(a.credential)}
	case a.method.set:
		return authz.Action{Method: b.named(a.method, "method")}
	case a.host.set:
		return authz.Action{Host: b.named(a.host, "host")}
	case a.path.set:
		return authz.Action{Path: b.named(a.path, "path")}
	}
	return authz.Action{}
}

// entryKey is the key of the entry that an action gives; byDefault "" means that the file has to say it.
func (b builder) entryKey(d given[actionDetails], byDefault string) string {
	key := d.value.key
	switch {
	case key.set && key.value == "":
		b.fail(key.at, "the key of an entry is empty", "write the `key` of a descriptor under `descriptors:`")
	case !key.mentioned && byDefault == "":
		b.require("key", key, d, "add `key: <the key of a descriptor under descriptors>`")
	}
	return key.or(byDefault)
}

// require reports an action that lacks a key.
func (b builder) require(name string, g given[string], d given[actionDetails], remedy string) {
	switch {
	case !g.mentioned && !b.strange[d.at]:
		b.fail(d.key, "this action lacks "+quoted(name), remedy)
	case g.set && g.value == "":
		b.fail(g.at, quoted(name)+" is empty", remedy)
	}
}

func (b builder) genericKey(d given[actionDetails]) *authz.GenericKey {
	b.require("value", d.value.value, d, "add `value: <what the entry always says>`")
	return &authz.GenericKey{Key: b.entryKey(d, "generic_key"), Value: d.value.value.value}
}

func (b builder) requestHeader(d given[actionDetails]) *authz.RequestHeader {
	b.requireHeader(d)
	return &authz.RequestHeader{Key: b.entryKey(d, ""), Header: b.headerName(d.value.header)}
}

func (b builder) requireHeader(d given[actionDetails]) {
	if !d.value.header.mentioned {
		b.require("header", d.value.header, d, "add `header: <its name>`")
	}
}

func (b builder) remoteAddress(d given[actionDetails]) *authz.RemoteAddress {
	key := "remote_address"
	if d.value.ipv4Mask.value > 0 || d.value.ipv6Mask.value > 0 {
		key = "masked_remote_address"
	}
	return &authz.RemoteAddress{
		Key:         b.entryKey(d, key),
		TrustedHops: int(d.value.trustedHops.value),
		IPv4Mask:    int(d.value.ipv4Mask.value),
		IPv6Mask:    int(d.value.ipv6Mask.value),
	}
}

func (b builder) headerValueMatch(d given[actionDetails]) *authz.HeaderValueMatch {
	b.requireHeader(d)
	b.require("value", d.value.value, d, "add `value: <what the entry says when the header matches>`")
	if p := d.value.pattern; p.set && p.value == "" {
		b.fail(p.at, "`pattern` is empty", "`*` stands for any characters; without `pattern` the header has to be there")
	}
	return &authz.HeaderValueMatch{
		Key:     b.entryKey(d, "header_match"),
		Value:   d.value.value.value,
		Header:  b.headerName(d.value.header),
		Pattern: d.value.pattern.value,
		Not:     d.value.invert.value,
	}
}

func (b builder) queryParameter(d given[actionDetails]) *authz.QueryParameter {
	b.require("parameter", d.value.parameter, d, "add `parameter: <its name in the query>`")
	return &authz.QueryParameter{Key: b.entryKey(d, ""), Parameter: d.value.parameter.value}
}

func (b builder) metadata(d given[actionDetails]) *authz.Metadata {
	path := d.value.path
	const remedy = "want the namespace of an Envoy filter and the keys below it, such as `[envoy.filters.http.jwt_authn, payload, plan]`"
	switch {
	case !path.mentioned && !b.strange[d.at]:
		b.fail(d.key, "this action lacks `path`", remedy)
	case path.set && len(path.value) < 2:
		b.fail(path.at, "`path` names a namespace only", remedy)
	}
	return &authz.Metadata{Key: b.entryKey(d, ""), Path: plainTexts(path.value), Default: d.value.fallback.value}
}

func (b builder) credentialAction(d given[actionDetails]) *authz.CredentialAction {
	field := d.value.field
	words := []string{"owner", "plan", "key_id", "method", "label.<name>", "claim.<name>"}
	kind, name, dotted := strings.Cut(field.value, ".")
	switch {
	case !field.set || field.value == "":
		b.require("field", field, d, "want one of "+oneOf(words))
	case slices.Contains(words[:4], field.value):
	case dotted && (kind == "label" || kind == "claim") && name != "" && !strings.Contains(name, "<"):
	default:
		b.fail(field.at, "a credential has no field "+quoted(field.value), didYouMean(field.value, words[:4]), "want one of "+oneOf(words))
	}
	return &authz.CredentialAction{Key: b.credentialKey(d), Field: field.value, Default: d.value.fallback.value}
}

// credentialKey is the field's name, unless the file gives another.
func (b builder) credentialKey(d given[actionDetails]) string {
	if field := d.value.field.value; field != "" {
		return b.entryKey(d, field)
	}
	return d.value.key.value
}

func (b builder) named(d given[actionDetails], byDefault string) *authz.Named {
	return &authz.Named{Key: b.entryKey(d, byDefault)}
}

// entryOf is the entry that an action gives, with the value "" where the request says it. The key is "" when nothing is known.
func entryOf(a authz.Action) descriptors.Entry {
	switch {
	case a.GenericKey != nil:
		return descriptors.Entry{Key: a.GenericKey.Key, Value: a.GenericKey.Value}
	case a.RequestHeader != nil:
		return descriptors.Entry{Key: a.RequestHeader.Key}
	case a.RemoteAddress != nil:
		return descriptors.Entry{Key: a.RemoteAddress.Key}
	case a.HeaderValueMatch != nil:
		return descriptors.Entry{Key: a.HeaderValueMatch.Key, Value: a.HeaderValueMatch.Value}
	case a.QueryParameter != nil:
		return descriptors.Entry{Key: a.QueryParameter.Key}
	case a.Metadata != nil:
		return descriptors.Entry{Key: a.Metadata.Key}
	case a.Credential != nil:
		return descriptors.Entry{Key: a.Credential.Key}
	}
	for _, named := range []*authz.Named{a.Method, a.Host, a.Path} {
		if named != nil {
			return descriptors.Entry{Key: named.Key}
		}
	}
	return descriptors.Entry{}
}
