package rulefile

import (
	"fmt"

	"github.com/extauthz/extauthz/pkg/authz"
)

// The schema of `limits:` and `refused:` in `authz:`: what becomes a descriptor, in the words of Envoy's route
// rate_limits.

// requestLimitSchema is the schema of the elements of a list, `limits` or `refused`.
func requestLimitSchema(list string) object[authz.RateLimit] {
	element, example := "an element of `"+list+"` in `authz`", "- actions: [{credential: {field: owner}}]"
	if list == "refused" {
		example = "- actions: [{remote_address: {key: refused_address}}]"
	}
	return object[authz.RateLimit]{
		section{
			name:    element,
			where:   "in " + element,
			belongs: "it belongs in an element of `" + list + ":` in `authz`",
			example: example,
			part:    "authz",
		},
		[]key[authz.RateLimit]{
			put("actions", actionList, func(l *authz.RateLimit) *[]authz.Action { return &l.Actions }),
			put("hits_addend", one(hitsSchema), func(l *authz.RateLimit) *authz.HitsAddend { return &l.Hits }),
		},
	}
}

func hitsSchema() object[authz.HitsAddend] {
	return object[authz.HitsAddend]{
		section{
			name:    "`hits_addend`",
			where:   "in `hits_addend`",
			belongs: "it belongs inside `hits_addend:`",
			example: "hits_addend: {number: 100}",
			part:    "authz",
		},
		[]key[authz.HitsAddend]{
			put("number", between[int64](1, 1_000_000_000), func(h *authz.HitsAddend) *int64 { return &h.Number }),
			maybe("header", text, func(h *authz.HitsAddend) **string { return &h.Header }),
			maybe("extension", text, func(h *authz.HitsAddend) **string { return &h.Extension }),
		},
	}
}

func actionSchema() object[authz.Action] {
	return object[authz.Action]{
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
		[]key[authz.Action]{
			maybe("generic_key", one(genericKeySchema), func(a *authz.Action) **authz.GenericKey { return &a.GenericKey }),
			maybe("request_headers", one(requestHeadersSchema), func(a *authz.Action) **authz.RequestHeaders { return &a.RequestHeaders }),
			bare(maybe("remote_address", one(remoteAddressSchema), func(a *authz.Action) **authz.RemoteAddress { return &a.RemoteAddress })),
			maybe("header_value_match", one(headerMatchSchema), func(a *authz.Action) **authz.HeaderValueMatch { return &a.HeaderValueMatch }),
			maybe("query_parameter", one(queryParameterSchema), func(a *authz.Action) **authz.QueryParameter { return &a.QueryParameter }),
			maybe("metadata", one(metadataSchema), func(a *authz.Action) **authz.Metadata { return &a.Metadata }),
			maybe("credential", one(credentialActionSchema), func(a *authz.Action) **authz.CredentialAction { return &a.Credential }),
			bare(maybe("method", one(methodSchema), func(a *authz.Action) **authz.MethodAction { return &a.Method })),
			bare(maybe("host", one(hostSchema), func(a *authz.Action) **authz.HostAction { return &a.Host })),
			bare(maybe("path", one(pathActionSchema), func(a *authz.Action) **authz.PathAction { return &a.Path })),
		},
	}
}

// actionOf is the schema of one action. example is the whole of a small one.
func actionOf[T any](name, example string, rows ...key[T]) object[T] {
	return object[T]{
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

func genericKeySchema() object[authz.GenericKey] {
	return actionOf("generic_key", "generic_key: {key: tier, value: public}",
		maybe("key", text, func(a *authz.GenericKey) **string { return &a.Key }),
		maybe("value", text, func(a *authz.GenericKey) **string { return &a.Value }))
}

func requestHeadersSchema() object[authz.RequestHeaders] {
	return actionOf("request_headers", "request_headers: {header: x-tenant, key: tenant}",
		maybe("header", text, func(a *authz.RequestHeaders) **string { return &a.Header }),
		maybe("key", text, func(a *authz.RequestHeaders) **string { return &a.Key }))
}

func remoteAddressSchema() object[authz.RemoteAddress] {
	return actionOf("remote_address", "remote_address: {trusted_hops: 1}",
		maybe("key", text, func(a *authz.RemoteAddress) **string { return &a.Key }),
		put("trusted_hops", between[int](0, 100), func(a *authz.RemoteAddress) *int { return &a.TrustedHops }),
		put("ipv4_mask", between[int](0, 32), func(a *authz.RemoteAddress) *int { return &a.IPv4Mask }),
		put("ipv6_mask", between[int](0, 128), func(a *authz.RemoteAddress) *int { return &a.IPv6Mask }))
}

func headerMatchSchema() object[authz.HeaderValueMatch] {
	return actionOf("header_value_match", `header_value_match: {header: user-agent, pattern: "*bot*", value: bot}`,
		maybe("header", text, func(a *authz.HeaderValueMatch) **string { return &a.Header }),
		maybe("key", text, func(a *authz.HeaderValueMatch) **string { return &a.Key }),
		maybe("value", text, func(a *authz.HeaderValueMatch) **string { return &a.Value }),
		maybe("pattern", text, func(a *authz.HeaderValueMatch) **string { return &a.Pattern }),
		put("invert", boolean, func(a *authz.HeaderValueMatch) *bool { return &a.Invert }))
}

func queryParameterSchema() object[authz.QueryParameter] {
	return actionOf("query_parameter", "query_parameter: {parameter: tenant, key: tenant}",
		maybe("parameter", text, func(a *authz.QueryParameter) **string { return &a.Parameter }),
		maybe("key", text, func(a *authz.QueryParameter) **string { return &a.Key }))
}

func metadataSchema() object[authz.Metadata] {
	return actionOf("metadata", "metadata: {key: plan, path: [envoy.filters.http.jwt_authn, payload, plan]}",
		maybe("key", text, func(a *authz.Metadata) **string { return &a.Key }),
		put("path", texts, func(a *authz.Metadata) *[]string { return &a.Path }),
		put("default", text, func(a *authz.Metadata) *string { return &a.Default }))
}

func credentialActionSchema() object[authz.CredentialAction] {
	return actionOf("credential", "credential: {field: owner, key: user}",
		maybe("field", text, func(a *authz.CredentialAction) **string { return &a.Field }),
		maybe("key", text, func(a *authz.CredentialAction) **string { return &a.Key }),
		put("default", text, func(a *authz.CredentialAction) *string { return &a.Default }))
}

func methodSchema() object[authz.MethodAction] {
	return actionOf("method", "method: {key: method}",
		maybe("key", text, func(a *authz.MethodAction) **string { return &a.Key }))
}

func hostSchema() object[authz.HostAction] {
	return actionOf("host", "host: {key: host}",
		maybe("key", text, func(a *authz.HostAction) **string { return &a.Key }))
}

func pathActionSchema() object[authz.PathAction] {
	return actionOf("path", "path: {key: path}",
		maybe("key", text, func(a *authz.PathAction) **string { return &a.Key }))
}

// actionSections lists the actions, those first in which a misplaced key is more likely meant.
func actionSections() []sectionKeys {
	return []sectionKeys{
		of(credentialActionSchema()), of(requestHeadersSchema()), of(genericKeySchema()), of(remoteAddressSchema()),
		of(headerMatchSchema()), of(queryParameterSchema()), of(metadataSchema()), of(methodSchema()), of(hostSchema()),
		of(pathActionSchema()),
	}
}
