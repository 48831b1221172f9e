package rulefile

import "fmt"

// The schema of `limits:` and `refused:` in `authz:`: what becomes a descriptor, in the words of Envoy's route
// rate_limits.

// requestLimitKeys are the keys of an element of `limits:` and of `refused:` in `authz:`.
type requestLimitKeys struct {
	at      place
	actions given[[]actionKeys]
	hits    given[hitsKeys]
}

// requestLimitSchema is the schema of the elements of a list, `limits` or `refused`.
func requestLimitSchema(list string) object[requestLimitKeys] {
	element, example := "an element of `"+list+"` in `authz`", "- actions: [{credential: {field: owner}}]"
	if list == "refused" {
		example = "- actions: [{" + aboutRefused + "}]"
	}
	return object[requestLimitKeys]{
		section{
			name:    element,
			where:   "in " + element,
			belongs: "it belongs in an element of `" + list + ":` in `authz`",
			example: example,
			part:    "authz",
		},
		[]key[requestLimitKeys]{
			on("actions", actionList, func(l *requestLimitKeys) *given[[]actionKeys] { return &l.actions }),
			on("hits_addend", one(hitsSchema), func(l *requestLimitKeys) *given[hitsKeys] { return &l.hits }),
		},
	}
}

// hitsKeys are the keys of `hits_addend:`.
type hitsKeys struct {
	number    given[int64]
	header    given[string]
	extension given[string]
}

func hitsSchema() object[hitsKeys] {
	return object[hitsKeys]{
		section{
			name:    "`hits_addend`",
			where:   "in `hits_addend`",
			belongs: "it belongs inside `hits_addend:`",
			example: "hits_addend: {number: 100}",
			part:    "authz",
		},
		[]key[hitsKeys]{
			on("number", between(1, maxHits), func(h *hitsKeys) *given[int64] { return &h.number }),
			on("header", text, func(h *hitsKeys) *given[string] { return &h.header }),
			on("extension", text, func(h *hitsKeys) *given[string] { return &h.extension }),
		},
	}
}

// maxHits is the most that Envoy takes for hits_addend.
const maxHits = 1_000_000_000

// actionKeys are the keys of an element of `actions:`. Each is an action, and an element has one of them.
type actionKeys struct {
	at               place
	genericKey       given[actionDetails]
	requestHeaders   given[actionDetails]
	remoteAddress    given[actionDetails]
	headerValueMatch given[actionDetails]
	queryParameter   given[actionDetails]
	metadata         given[actionDetails]
	credential       given[actionDetails]
	method           given[actionDetails]
	host             given[actionDetails]
	path             given[actionDetails]
}

func actionSchema() object[actionKeys] {
	return object[actionKeys]{
		section{
			name:    "an element of `actions`",
			where:   "in an element of `actions`",
			belongs: "it belongs in an element of `actions:`",
			example: "- credential: {field: owner, key: user}",
			part:    "authz",
			remarks: map[string]string{
				"masked_remote_address": "write `remote_address: {ipv4_mask: 24, ipv6_mask: 64}`",
				"dynamic_metadata":      "write `metadata: {key: plan, path: [<namespace>, <key>]}`",
			},
		},
		[]key[actionKeys]{
			on("generic_key", one(genericKeySchema), func(a *actionKeys) *given[actionDetails] { return &a.genericKey }),
			on("request_headers", one(requestHeadersSchema), func(a *actionKeys) *given[actionDetails] { return &a.requestHeaders }),
			bare("remote_address", one(remoteAddressSchema), func(a *actionKeys) *given[actionDetails] { return &a.remoteAddress }),
			on("header_value_match", one(headerValueMatchSchema), func(a *actionKeys) *given[actionDetails] { return &a.headerValueMatch }),
			on("query_parameter", one(queryParameterSchema), func(a *actionKeys) *given[actionDetails] { return &a.queryParameter }),
			on("metadata", one(metadataSchema), func(a *actionKeys) *given[actionDetails] { return &a.metadata }),
			on("credential", one(credentialActionSchema), func(a *actionKeys) *given[actionDetails] { return &a.credential }),
			bare("method", one(methodSchema), func(a *actionKeys) *given[actionDetails] { return &a.method }),
			bare("host", one(hostSchema), func(a *actionKeys) *given[actionDetails] { return &a.host }),
			bare("path", one(pathActionSchema), func(a *actionKeys) *given[actionDetails] { return &a.path }),
		},
	}
}

// actionDetails are the keys of all actions; the schema of each takes those that mean something to it.
type actionDetails struct {
	key         given[string]
	value       given[string]
	header      given[string]
	pattern     given[string]
	invert      given[bool]
	parameter   given[string]
	path        given[[]item]
	field       given[string]
	fallback    given[string] // default
	trustedHops given[int64]
	ipv4Mask    given[int64]
	ipv6Mask    given[int64]
}

// actionRow is a key of some action.
type actionRow = key[actionDetails]

func keyRow() actionRow {
	return on("key", text, func(d *actionDetails) *given[string] { return &d.key })
}

func headerRow() actionRow {
	return on("header", text, func(d *actionDetails) *given[string] { return &d.header })
}

func valueRow() actionRow {
	return on("value", text, func(d *actionDetails) *given[string] { return &d.value })
}

func defaultRow() actionRow {
	return on("default", text, func(d *actionDetails) *given[string] { return &d.fallback })
}

// actionOf is the schema of one action. example is the whole of a small one.
func actionOf(name, example string, rows ...actionRow) object[actionDetails] {
	return object[actionDetails]{
		section{
			name:    "the action `" + name + "`",
			where:   "in the action `" + name + "`",
			belongs: "it belongs inside the action `" + name + ":`",
			example: example,
			part:    "authz",
			remarks: envoysWords(),
		},
		rows,
	}
}

// envoysWords are what keys of actions are called in Envoy's route configuration.
func envoysWords() map[string]string {
	words := map[string]string{}
	for theirs, ours := range map[string]string{
		"descriptor_key": "key", "descriptor_value": "value", "header_name": "header", "query_parameter_name": "parameter", "metadata_key": "path",
		"default_value": "default", "expect_match": "invert", "v4_prefix_mask_len": "ipv4_mask", "v6_prefix_mask_len": "ipv6_mask",
	} {
		words[theirs] = fmt.Sprintf("what is `%s` in Envoy's configuration is `%s` here", theirs, ours)
	}
	return words
}

func genericKeySchema() object[actionDetails] {
	return actionOf("generic_key", "generic_key: {key: tier, value: public}", keyRow(), valueRow())
}

func requestHeadersSchema() object[actionDetails] {
	return actionOf("request_headers", "request_headers: {header: x-tenant, key: tenant}", headerRow(), keyRow())
}

func remoteAddressSchema() object[actionDetails] {
	return actionOf("remote_address", "remote_address: {trusted_hops: 1}",
		keyRow(),
		on("trusted_hops", between(0, 100), func(d *actionDetails) *given[int64] { return &d.trustedHops }),
		on("ipv4_mask", between(0, 32), func(d *actionDetails) *given[int64] { return &d.ipv4Mask }),
		on("ipv6_mask", between(0, 128), func(d *actionDetails) *given[int64] { return &d.ipv6Mask }))
}

func headerValueMatchSchema() object[actionDetails] {
	return actionOf("header_value_match", `header_value_match: {header: user-agent, pattern: "*bot*", value: bot}`,
		headerRow(), keyRow(), valueRow(),
		on("pattern", text, func(d *actionDetails) *given[string] { return &d.pattern }),
		on("invert", boolean, func(d *actionDetails) *given[bool] { return &d.invert }))
}

func queryParameterSchema() object[actionDetails] {
	return actionOf("query_parameter", "query_parameter: {parameter: tenant, key: tenant}",
		on("parameter", text, func(d *actionDetails) *given[string] { return &d.parameter }), keyRow())
}

func metadataSchema() object[actionDetails] {
	return actionOf("metadata", "metadata: {key: plan, path: [envoy.filters.http.jwt_authn, payload, plan]}",
		keyRow(), on("path", texts, func(d *actionDetails) *given[[]item] { return &d.path }), defaultRow())
}

func credentialActionSchema() object[actionDetails] {
	return actionOf("credential", "credential: {field: owner, key: user}",
		on("field", text, func(d *actionDetails) *given[string] { return &d.field }), keyRow(), defaultRow())
}

func methodSchema() object[actionDetails] {
	return actionOf("method", "method: {key: method}", keyRow())
}

func hostSchema() object[actionDetails] { return actionOf("host", "host: {key: host}", keyRow()) }

func pathActionSchema() object[actionDetails] { return actionOf("path", "path: {key: path}", keyRow()) }

// actionSchemas lists the actions, those first in which a misplaced key is more likely meant.
func actionSchemas() []object[actionDetails] {
	return []object[actionDetails]{
		credentialActionSchema(), requestHeadersSchema(), genericKeySchema(), remoteAddressSchema(), headerValueMatchSchema(),
		queryParameterSchema(), metadataSchema(), methodSchema(), hostSchema(), pathActionSchema(),
	}
}
