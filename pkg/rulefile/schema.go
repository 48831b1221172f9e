package rulefile

import (
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// The schema of a rule file. A new key is one field of a struct and one row of its table.

// rootKeys are the keys at the top of a file.
type rootKeys struct {
	domain      given[string]
	descriptors given[[]descriptorKeys]
	authz       given[authz.Policy]
	end         given[bool]
}

func rootSchema() object[rootKeys] {
	return object[rootKeys]{
		section{
			name:    "the top level of the file",
			where:   "at the top level of the file",
			belongs: "it belongs at the top level of the file",
			example: "domain: shop",
		},
		[]key[rootKeys]{
			on("domain", text, func(r *rootKeys) *given[string] { return &r.domain }),
			on("descriptors", descriptorList, func(r *rootKeys) *given[[]descriptorKeys] { return &r.descriptors }),
			bare(on("authz", one(authzSchema), func(r *rootKeys) *given[authz.Policy] { return &r.authz })),
			on("end", boolean, func(r *rootKeys) *given[bool] { return &r.end }),
		},
	}
}

// descriptorKeys are the keys of an element of `descriptors:`.
type descriptorKeys struct {
	at             place
	key            given[string]
	value          given[string]
	rateLimit      given[limitKeys]
	limits         given[[]limitKeys]
	shadowMode     given[bool]
	quotaMode      given[bool]
	detailedMetric given[bool]
	valueToMetric  given[bool]
	shareThreshold given[bool]
	metadata       given[map[string]any]
	descriptors    given[[]descriptorKeys]
}

func descriptorSchema() object[descriptorKeys] {
	return object[descriptorKeys]{
		section{
			name:    "a descriptor",
			where:   "in a descriptor",
			belongs: "it belongs directly in a descriptor, an element of `descriptors:`",
			example: "- key: api_key",
		},
		[]key[descriptorKeys]{
			on("key", text, func(d *descriptorKeys) *given[string] { return &d.key }),
			on("value", text, func(d *descriptorKeys) *given[string] { return &d.value }),
			on("rate_limit", oneLimit, func(d *descriptorKeys) *given[limitKeys] { return &d.rateLimit }),
			on("limits", limitList, func(d *descriptorKeys) *given[[]limitKeys] { return &d.limits }),
			on("shadow_mode", boolean, func(d *descriptorKeys) *given[bool] { return &d.shadowMode }),
			on("quota_mode", boolean, func(d *descriptorKeys) *given[bool] { return &d.quotaMode }),
			on("detailed_metric", boolean, func(d *descriptorKeys) *given[bool] { return &d.detailedMetric }),
			on("value_to_metric", boolean, func(d *descriptorKeys) *given[bool] { return &d.valueToMetric }),
			on("share_threshold", boolean, func(d *descriptorKeys) *given[bool] { return &d.shareThreshold }),
			on("metadata", freeMap, func(d *descriptorKeys) *given[map[string]any] { return &d.metadata }),
			on("descriptors", descriptorList, func(d *descriptorKeys) *given[[]descriptorKeys] { return &d.descriptors }),
		},
	}
}

// limitKeys are the keys of `rate_limit:`, and of an element of `limits:`.
type limitKeys struct {
	at              place
	unit            given[descriptors.Unit]
	unitMultiplier  given[int64]
	requestsPerUnit given[int64]
	unlimited       given[bool]
	name            given[string]
	replaces        given[[]replacesKeys]
	algorithm       given[bucket.Algorithm]
	burst           given[int64]
	countDenied     given[bool]
	onStoreError    given[ratelimit.StoreErrorPolicy]
	hashTag         given[string]
	override        given[ratelimit.Override]
	overrideMax     given[int64]
	maxDelay        given[time.Duration]
	problem         given[problemKeys]
}

func limitSchema() object[limitKeys] {
	return object[limitKeys]{
		section{
			name:    "a rate limit",
			where:   "in a rate limit",
			belongs: "it belongs inside `rate_limit:`",
			example: "{unit: minute, requests_per_unit: 100}",
		},
		[]key[limitKeys]{
			on("unit", words[descriptors.Unit], func(l *limitKeys) *given[descriptors.Unit] { return &l.unit }),
			on("unit_multiplier", whole(1), func(l *limitKeys) *given[int64] { return &l.unitMultiplier }),
			on("requests_per_unit", whole(0), func(l *limitKeys) *given[int64] { return &l.requestsPerUnit }),
			on("unlimited", boolean, func(l *limitKeys) *given[bool] { return &l.unlimited }),
			on("name", text, func(l *limitKeys) *given[string] { return &l.name }),
			on("replaces", replacesList, func(l *limitKeys) *given[[]replacesKeys] { return &l.replaces }),
			on("algorithm", words[bucket.Algorithm], func(l *limitKeys) *given[bucket.Algorithm] { return &l.algorithm }),
			on("burst", whole(1), func(l *limitKeys) *given[int64] { return &l.burst }),
			on("count_denied", boolean, func(l *limitKeys) *given[bool] { return &l.countDenied }),
			on("on_store_error", words[ratelimit.StoreErrorPolicy], func(l *limitKeys) *given[ratelimit.StoreErrorPolicy] { return &l.onStoreError }),
			on("hash_tag", text, func(l *limitKeys) *given[string] { return &l.hashTag }),
			on("override", words[ratelimit.Override], func(l *limitKeys) *given[ratelimit.Override] { return &l.override }),
			on("override_max", whole(1), func(l *limitKeys) *given[int64] { return &l.overrideMax }),
			on("max_delay", duration, func(l *limitKeys) *given[time.Duration] { return &l.maxDelay }),
			on("problem", one(problemSchema), func(l *limitKeys) *given[problemKeys] { return &l.problem }),
		},
	}
}

// problemKeys are the keys of `problem:`, the body of a denial.
type problemKeys struct {
	kind   given[string]
	title  given[string]
	detail given[string]
}

func problemSchema() object[problemKeys] {
	return object[problemKeys]{
		section{
			name:    "`problem`",
			where:   "in `problem`",
			belongs: "it belongs inside `problem:`",
			example: "problem: {detail: Try again in {retry_after} s.}",
		},
		[]key[problemKeys]{
			on("type", text, func(p *problemKeys) *given[string] { return &p.kind }),
			on("title", text, func(p *problemKeys) *given[string] { return &p.title }),
			on("detail", text, func(p *problemKeys) *given[string] { return &p.detail }),
		},
	}
}

// replacesKeys are the keys of an element of `replaces:`.
type replacesKeys struct {
	at   place
	name given[string]
}

func replacesSchema() object[replacesKeys] {
	return object[replacesKeys]{
		section{
			name:    "an element of `replaces`",
			where:   "in an element of `replaces`",
			belongs: "it belongs in an element of `replaces:`",
			example: "- name: other_limit",
		},
		[]key[replacesKeys]{
			on("name", text, func(e *replacesKeys) *given[string] { return &e.name }),
		},
	}
}

// sectionKeys are the keys that a section knows.
type sectionKeys struct {
	section
	keys []string
}

// sections lists all sections, those first in which a misplaced key is more likely meant: for that, the ones of `authz:` stand
// together behind those of rules.
func sections() []sectionKeys {
	list := []sectionKeys{
		of(limitSchema()), of(descriptorSchema()), of(rootSchema()), of(replacesSchema()), of(problemSchema()),
		of(authzSchema()), of(credentialSchema()), of(apiKeySchema()), of(jwtSchema()), of(mtlsSchema()), of(refusalSchema()),
		of(accessSchema()), of(pathSchema()), of(identityHeaderSchema()),
		of(requestLimitSchema("limits")), of(hitsSchema()), of(actionSchema()),
	}
	return append(list, actionSections()...)
}

func of[T any](o object[T]) sectionKeys { return sectionKeys{o.section, o.keyNames()} }
