package rls

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// dynamicMetadata is what envoyproxy/ratelimit puts into its answer (domain, descriptors, hitsAddend, metadata of the rules that
// let the request pass), and which rule decided: `rule`, `limit`, `code`, `remaining`, and `retry_after` in seconds.
func dynamicMetadata(q *ratelimit.Query, res *ratelimit.Result) *structpb.Struct {
	list := make([]*structpb.Value, len(q.Descriptors))
	metadata := map[string]any{}
	for i := range q.Descriptors {
		list[i] = structpb.NewStructValue(descriptorMetadata(&q.Descriptors[i]))
		s := &res.Statuses[i]
		if s.Rule != nil && (s.Binding == nil || !s.Binding.Denied()) {
			merge(metadata, s.Rule.Metadata)
		}
	}
	fields := map[string]*structpb.Value{
		"domain":      text(q.Domain),
		"descriptors": structpb.NewListValue(&structpb.ListValue{Values: list}),
	}
	if q.Hits != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(q.Hits))
	}
	if len(metadata) > 0 {
		// Rule sources hand over only what a Struct can hold.
		if s, err := structpb.NewStruct(metadata); err == nil {
			fields["metadata"] = structpb.NewStructValue(s)
		}
	}
	addDecider(fields, res)
	return &structpb.Struct{Fields: fields}
}

func addDecider(fields map[string]*structpb.Value, res *ratelimit.Result) {
	binding := res.Binding()
	if binding == nil {
		return
	}
	fields["rule"] = text(binding.RuleName())
	fields["limit"] = text(binding.Binding.Limit.Policy)
	fields["code"] = text("OK")
	fields["remaining"] = structpb.NewNumberValue(float64(binding.Binding.Decision.Remaining))
	if !res.Allowed {
		fields["code"] = text("OVER_LIMIT")
		if res.RetryAfter >= 0 {
			fields["retry_after"] = structpb.NewNumberValue(float64(ratelimit.Seconds(res.RetryAfter)))
		}
	}
}

func descriptorMetadata(d *descriptors.Descriptor) *structpb.Struct {
	entries := make([]*structpb.Value, len(d.Entries))
	for i, e := range d.Entries {
		entries[i] = text(e.Key + "=" + e.Value)
	}
	fields := map[string]*structpb.Value{"entries": structpb.NewListValue(&structpb.ListValue{Values: entries})}
	if d.Limit != nil {
		fields["limit"] = text(fmt.Sprintf("requests_per_unit:%d unit:%s", d.Limit.RequestsPerUnit, strings.ToUpper(d.Limit.Unit.String())))
	}
	if d.Hits != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(*d.Hits))
	}
	return &structpb.Struct{Fields: fields}
}

// text makes a value of any bytes: a proto with text that is not UTF-8 could not be sent.
func text(s string) *structpb.Value {
	return structpb.NewStringValue(strings.ToValidUTF8(s, "\uFFFD"))
}

// merge adds what is not there yet; maps of both are merged.
func merge(to, from map[string]any) {
	for k, v := range from {
		inner, isMap := v.(map[string]any)
		old, there := to[k]
		oldInner, oldIsMap := old.(map[string]any)
		switch {
		case there && isMap && oldIsMap:
			merge(oldInner, inner)
		case there:
		case isMap: // a copy: the rule's own must not change
			copied := map[string]any{}
			merge(copied, inner)
			to[k] = copied
		default:
			to[k] = v
		}
	}
}
