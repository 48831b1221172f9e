package file

import (
	_ "embed"
	"reflect"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// Schema returns the JSON Schema of rule files.
func Schema() ([]byte, error) { return strictyaml.Schema(ruleKind(), reflect.TypeFor[root]()) }

// notes explain the keys in more detail than their tags.
//
//go:embed notes.md
var notes string

// Reference describes all keys of rule files.
func Reference() *strictyaml.Field {
	return strictyaml.Reference(ruleKind(), reflect.TypeFor[root](), notes)
}

// ruleKind describes rule files and their parts. A file of the largest size has about 350,000 values.
func ruleKind() *strictyaml.Kind {
	return &strictyaml.Kind{
		Noun:      "rule file",
		Begins:    "it begins with `domain: <name>`, the domain of Envoy's rate limit filter",
		Empty:     "config file cannot have empty domain: there is nothing in the file",
		Second:    "a rule file is one document with one domain: move the text after `---` into another file",
		Huge:      "a limit cannot be that large: for no limit write `unlimited: true` and nothing else",
		Sections:  Sections(),
		MaxSize:   4 << 20,
		TooLarge:  "is this a rule file? If so, split it and set MERGE_DOMAIN_CONFIG=true",
		Directory: "rules are read from one directory, not from its subdirectories",
		MaxValues: 500_000,
		Mask:      rules.Mask,
	}
}

// Sections name the maps of a rule file. A misplaced key is more likely meant for an earlier section.
func Sections() []strictyaml.Section {
	const noKeys = "API keys are never in rule files: `extauthz keys create` creates a key and stores only its hash"
	const inOverride = "in place of `override: allowed` and `override_max: N` write `override: {max: N}`; " +
		"delete `override: denied`, which is the default"
	list := []strictyaml.Section{
		{
			Type: reflect.TypeFor[ratelimit.Limit](), Name: "a rate limit", Belongs: "it belongs inside `rate_limit:`",
			Example: "{unit: minute, requests_per_unit: 100}", IfList: "for several limits of one descriptor write `limits:`",
			Remarks: map[string]string{"override_max": inOverride},
		},
		{
			Type: reflect.TypeFor[ratelimit.Node](), Name: "a descriptor",
			Belongs: "it belongs directly in a descriptor, an element of `descriptors:`", Example: "- key: api_key",
		},
		{Type: reflect.TypeFor[root]()},
		{
			Type: reflect.TypeFor[networks.List](), Name: "a network", Belongs: "it belongs in a network of `networks:`",
			Example: "{file: partners.txt}",
			IfText:  "put the prefixes in brackets: `[10.0.0.0/8]`; or name a file: `{file: partners.txt}`",
		},
		{Type: reflect.TypeFor[ratelimit.Override](), Example: "{max: 1000}", IfText: inOverride},
		{Type: reflect.TypeFor[ratelimit.Replaced](), Example: "- name: other_limit"},
		{Type: reflect.TypeFor[ratelimit.ProblemDetail](), Example: "problem: {detail: Try again in {retry_after} s.}"},
		{Type: reflect.TypeFor[authz.Policy](), Belongs: "it belongs directly in `authz:`",
			Example: "authz: {anonymous: allow}"},
		{Type: reflect.TypeFor[authz.Credential](), Example: "- api_key: {header: x-api-key}"},
		{
			Type:    reflect.TypeFor[apikey.Credential](),
			Remarks: map[string]string{"key": noKeys, "keys": noKeys, "value": noKeys, "secret": noKeys},
		},
		{
			Type: reflect.TypeFor[authz.Refusal](), Name: "a refusal", Belongs: "it belongs inside `absent:` or `invalid:`",
			Example: "{status: 401}",
		},
		{
			Type: reflect.TypeFor[authz.Access](), Name: "an access rule", Belongs: "it belongs in an element of `access:`",
			Example: "- {path: {prefix: /public/}, require: open}",
		},
		{
			Type: reflect.TypeFor[authz.PathPattern](), Name: "the `path` of a rule",
			Belongs: "it belongs inside `path:` of a rule",
		},
		{
			Type: reflect.TypeFor[authz.CostRule](), Name: "a rule of `cost`", Belongs: "it belongs in an element of `rules:`",
			Example: "- {methods: [POST], number: 20}",
		},
		{Type: reflect.TypeFor[authz.IdentityHeaders](), Belongs: "it belongs inside `headers:` of `authz`"},
		requestLimit("limits", "- actions: [{credential: {field: owner}}]"),
		requestLimit("refused", "- actions: [{remote_address: {key: refused_address}}]"),
		{
			Type: reflect.TypeFor[authz.Action](), Example: "- credential: {field: owner, key: user}",
			Remarks: map[string]string{
				"masked_remote_address": "write `remote_address: {ipv4_mask: 24, ipv6_mask: 64}`",
				"dynamic_metadata":      "write `metadata: {key: plan, path: [<namespace>, <key>]}`",
			},
		},
	}
	for field := range reflect.TypeFor[authz.Action]().Fields() {
		name, _ := strictyaml.Key(field)
		list = append(list, strictyaml.Section{
			Type: field.Type.Elem(), Name: "the action `" + name + "`",
			Belongs: "it belongs inside the action `" + name + ":`", Remarks: envoysWords(),
		})
	}
	return list
}

func requestLimit(key, example string) strictyaml.Section {
	return strictyaml.Section{
		Type: reflect.TypeFor[authz.RateLimit](), Key: key, Name: "an element of `" + key + "` in `authz`",
		Belongs: "it belongs in an element of `" + key + ":` in `authz`", Example: example,
	}
}

// envoysWords returns hints for the names that keys of actions have in Envoy's route configuration.
func envoysWords() map[string]string {
	words := map[string]string{}
	for theirs, ours := range map[string]string{
		"descriptor_key": "key", "descriptor_value": "value", "header_name": "header", "query_parameter_name": "parameter",
		"metadata_key": "path", "default_value": "default", "expect_match": "invert", "v4_prefix_mask_len": "ipv4_mask",
		"v6_prefix_mask_len": "ipv6_mask",
	} {
		words[theirs] = "`" + theirs + "` of Envoy's configuration is `" + ours + "` here"
	}
	return words
}
