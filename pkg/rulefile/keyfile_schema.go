package rulefile

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// The schema of a file of API keys. As in schema.go, a new key is one field and one row.

// keyGrammar is that of files of API keys. It allows for a hundred thousand of them.
func keyGrammar() grammar {
	root, record, limit, previous := keyRootSchema(), recordSchema(), ownLimitSchema(), previousSchema()
	return grammar{
		noun:   "key file",
		holds:  "keys",
		begins: "it begins with `keys:`, and a list of keys follows",
		empty:  "there is nothing in the file",
		second: "a key file is one document: move what follows `---` above it",
		sections: []sectionKeys{
			{record.section, record.keyNames()},
			{limit.section, limit.keyNames()},
			{previous.section, previous.keyNames()},
			{root.section, root.keyNames()},
		},
		maxValues: 3_000_000,
		mask:      apikey.Mask,
		maskLine:  maskLine,
	}
}

// maskLine hides in a line of the file what somebody may have put there in place of a hash: a key.
func maskLine(line string) string {
	secrets := regexp.MustCompile(`(?i)(\b(?:hash|key|secret|api_key|password|token)["']?\s*:\s*)([^\s,}#][^,}#]*)`)
	return apikey.Mask(secrets.ReplaceAllStringFunc(line, func(pair string) string {
		parts := secrets.FindStringSubmatch(pair)
		return parts[1] + strings.Repeat("*", utf8.RuneCountInString(parts[2]))
	}))
}

// keyRootKeys are the keys at the top of the file.
type keyRootKeys struct {
	keys given[[]recordKeys]
}

func keyRootSchema() object[keyRootKeys] {
	return object[keyRootKeys]{
		section{
			name:    "the top level of the file",
			where:   "at the top level of the file",
			belongs: "it belongs at the top level of the file",
			example: "keys: []",
		},
		[]key[keyRootKeys]{
			on("keys", recordList, func(r *keyRootKeys) *given[[]recordKeys] { return &r.keys }),
		},
	}
}

// recordKeys are the keys of an element of `keys:`.
type recordKeys struct {
	at        place
	id        given[string]
	hash      given[apikey.Hash]
	owner     given[string]
	plan      given[string]
	labels    given[map[string]string]
	scopes    given[[]string]
	notBefore given[time.Time]
	expires   given[time.Time]
	created   given[time.Time]
	disabled  given[bool]
	weak      given[bool]
	limit     given[ownLimitKeys]
	previous  given[previousKeys]
}

func recordSchema() object[recordKeys] {
	return object[recordKeys]{
		section{
			name:    "an API key",
			where:   "in an API key",
			belongs: "it belongs directly in an API key, an element of `keys:`",
			example: "- {id: 4Gd0kZ7b, hash: hmac-sha256:..., owner: alice}",
		},
		[]key[recordKeys]{
			on("id", text, func(k *recordKeys) *given[string] { return &k.id }),
			on("hash", keyHash, func(k *recordKeys) *given[apikey.Hash] { return &k.hash }),
			on("owner", labelText, func(k *recordKeys) *given[string] { return &k.owner }),
			on("plan", labelText, func(k *recordKeys) *given[string] { return &k.plan }),
			on("labels", labelMap, func(k *recordKeys) *given[map[string]string] { return &k.labels }),
			on("scopes", scopeList, func(k *recordKeys) *given[[]string] { return &k.scopes }),
			on("not_before", timestamp, func(k *recordKeys) *given[time.Time] { return &k.notBefore }),
			on("expires", timestamp, func(k *recordKeys) *given[time.Time] { return &k.expires }),
			on("created", timestamp, func(k *recordKeys) *given[time.Time] { return &k.created }),
			on("disabled", boolean, func(k *recordKeys) *given[bool] { return &k.disabled }),
			on("weak", boolean, func(k *recordKeys) *given[bool] { return &k.weak }),
			on("limit", ownLimit, func(k *recordKeys) *given[ownLimitKeys] { return &k.limit }),
			on("previous", previousHash, func(k *recordKeys) *given[previousKeys] { return &k.previous }),
		},
	}
}

// ownLimitKeys are the keys of `limit:`.
type ownLimitKeys struct {
	unit            given[descriptors.Unit]
	unitMultiplier  given[int64]
	requestsPerUnit given[int64]
	algorithm       given[bucket.Algorithm]
	burst           given[int64]
}

func ownLimitSchema() object[ownLimitKeys] {
	return object[ownLimitKeys]{
		section{
			name:    "the limit of an API key",
			where:   "in the limit of an API key",
			belongs: "it belongs inside `limit:`",
			example: "limit: {unit: minute, requests_per_unit: 100}",
		},
		[]key[ownLimitKeys]{
			on("unit", words[descriptors.Unit], func(l *ownLimitKeys) *given[descriptors.Unit] { return &l.unit }),
			on("unit_multiplier", whole(1), func(l *ownLimitKeys) *given[int64] { return &l.unitMultiplier }),
			on("requests_per_unit", whole(0), func(l *ownLimitKeys) *given[int64] { return &l.requestsPerUnit }),
			on("algorithm", words[bucket.Algorithm], func(l *ownLimitKeys) *given[bucket.Algorithm] { return &l.algorithm }),
			on("burst", whole(1), func(l *ownLimitKeys) *given[int64] { return &l.burst }),
		},
	}
}

// previousKeys are the keys of `previous:`.
type previousKeys struct {
	hash       given[apikey.Hash]
	validUntil given[time.Time]
}

func previousSchema() object[previousKeys] {
	return object[previousKeys]{
		section{
			name:    "the previous hash of an API key",
			where:   "in the previous hash of an API key",
			belongs: "it belongs inside `previous:`",
			example: "previous: {hash: hmac-sha256:..., valid_until: 2026-12-31}",
		},
		[]key[previousKeys]{
			on("hash", keyHash, func(p *previousKeys) *given[apikey.Hash] { return &p.hash }),
			on("valid_until", timestamp, func(p *previousKeys) *given[time.Time] { return &p.validUntil }),
		},
	}
}

func recordList(r *report, f field) ([]recordKeys, bool) {
	return each(recordSchema(), func(k *recordKeys, at place) { k.at = at })(r, f)
}

func ownLimit(r *report, f field) (ownLimitKeys, bool) {
	return readObject(r, ownLimitSchema(), f.value)
}

func previousHash(r *report, f field) (previousKeys, bool) {
	return readObject(r, previousSchema(), f.value)
}

// keyHash reads a hash. It never repeats what stands there, which may be a key that does not belong there.
func keyHash(r *report, f field) (apikey.Hash, bool) {
	h, err := apikey.ParseHash(f.value.text)
	if err != nil {
		r.fail(f.value.at, "this is no hash of a key", err.Error())
		return h, false
	}
	return h, true
}

// labelText reads a text that can be an owner, a plan or a label.
func labelText(r *report, f field) (string, bool) {
	t, ok := text(r, f)
	if !ok {
		return "", false
	}
	if err := apikey.CheckText(t); err != nil {
		r.fail(f.value.at, fmt.Sprintf("%s cannot be %s", quoted(f.key), quoted(t)), err.Error())
		return "", false
	}
	return t, true
}

func labelMap(r *report, f field) (map[string]string, bool) {
	if f.value.kind != mapping {
		r.fail(f.value.at, fmt.Sprintf("%s is a map, not %s", quoted(f.key), f.value.kind), "for example `labels: {team: payments}`")
		return nil, false
	}
	labels := make(map[string]string, len(f.value.fields))
	whole := true
	for _, l := range f.value.fields {
		if err := apikey.CheckText(l.key); err != nil {
			r.fail(l.at, "this cannot be the name of a label", err.Error())
			whole = false
			continue
		}
		value, ok := labelText(r, l)
		whole = whole && ok
		labels[l.key] = value
	}
	return labels, whole
}

func scopeList(r *report, f field) ([]string, bool) {
	if f.value.kind != list {
		r.fail(f.value.at, fmt.Sprintf("%s is a list, not %s", quoted(f.key), f.value.kind), "for example `scopes: [read, write]`")
		return nil, false
	}
	scopes := make([]string, 0, len(f.value.items))
	whole := true
	for _, item := range f.value.items {
		if err := apikey.CheckScope(item.text); err != nil || item.kind != scalar {
			r.fail(item.at, "a scope cannot be "+shown(item), "want one word")
			whole = false
			continue
		}
		scopes = append(scopes, item.text)
	}
	return scopes, whole
}

// timestamp reads a time (RFC 3339), or a date, which is its first moment in UTC.
func timestamp(r *report, f field) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, f.value.text); err == nil && f.value.kind == scalar && t.Year() >= 1970 {
			return t.UTC(), true
		}
	}
	r.fail(f.value.at, fmt.Sprintf("%s cannot be %s", quoted(f.key), shown(f.value)), "want a date such as `2026-12-31`, or a time such as `2026-12-31T18:00:00Z`")
	return time.Time{}, false
}
