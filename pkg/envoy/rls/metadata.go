package rls

import (
	"fmt"
	"strings"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/wire"
)

// appendMetadata appends the fields of dynamic_metadata, a google.protobuf.Struct. It has the fields of
// envoyproxy/ratelimit: domain, descriptors, hitsAddend, and the metadata of the rules that allow the request. It also
// names the deciding rule, except in strict mode: `rule`, `limit`, `code`, `remaining`, `retry_after` in seconds,
// `denied_since`, and `decided_by`, the source of the decision.
func (c *Codec) appendMetadata(b []byte, q *ratelimit.Query, res *ratelimit.Result) []byte {
	list := make([]any, len(q.Descriptors))
	metadata := map[string]any{}
	for i := range q.Descriptors {
		list[i] = descriptorMetadata(&q.Descriptors[i])
		if status := &res.Statuses[i]; c.returnsMetadata(&q.Descriptors[i], status) {
			merge(metadata, status.Rule.Node.Metadata)
		}
	}
	fields := map[string]any{"domain": q.Domain, "descriptors": list}
	if q.Hits != 0 {
		fields["hitsAddend"] = q.Hits
	}
	if len(metadata) > 0 {
		fields["metadata"] = metadata
	}
	if !c.Strict {
		addDecider(fields, res)
	}
	return wire.AppendFields(b, fields)
}

func addDecider(fields map[string]any, res *ratelimit.Result) {
	binding := res.Tightest()
	if binding == nil {
		return
	}
	fields["rule"] = binding.RuleName()
	fields["limit"] = binding.Binding.Limit.Policy
	fields["code"] = "OK"
	fields["remaining"] = binding.Binding.Decision.Remaining
	fields["decided_by"] = res.DecidedBy()
	if wait, since, denied := res.Denial(); denied {
		fields["code"] = "OVER_LIMIT"
		if wait >= 0 {
			fields["retry_after"] = wait
		}
		if since != "" {
			fields["denied_since"] = since
		}
	}
}

func descriptorMetadata(d *descriptors.Descriptor) map[string]any {
	entries := make([]any, len(d.Entries))
	for i, e := range d.Entries {
		entries[i] = e.Key + "=" + e.Value
	}
	fields := map[string]any{"entries": entries}
	if d.Limit != nil {
		limit := "unit:" + strings.ToUpper(d.Limit.Unit.String())
		if d.Limit.RequestsPerUnit != 0 { // as in the text format of protobuf, which envoyproxy/ratelimit sends
			limit = fmt.Sprintf("requests_per_unit:%d %s", d.Limit.RequestsPerUnit, limit)
		}
		fields["limit"] = limit
	}
	if d.Hits != nil {
		fields["hitsAddend"] = *d.Hits
	}
	return fields
}

// merge adds missing entries to to, and merges maps that are in both. It copies maps: those of a rule must not change.
func merge(to, from map[string]any) {
	for k, v := range from {
		inner, isMap := v.(map[string]any)
		if _, there := to[k]; !there {
			to[k] = v
			if isMap {
				to[k] = map[string]any{}
			}
		}
		if old, ok := to[k].(map[string]any); ok && isMap {
			merge(old, inner)
		}
	}
}
