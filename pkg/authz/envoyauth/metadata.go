package envoyauth

import (
	"math"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// dynamicMetadata is what Envoy's access logs and later filters learn of a decision, in the namespace of the ext_authz filter:
// reason, domain; owner, plan, method and key_id when it is known who asks; rule and remaining of the limit that binds; and the
// limit that a credential brings, as `limit.dynamic_metadata` of a route's rate_limits wants it. Nothing of it has no value: a
// rate limit action takes default_value only for what is not there.
func dynamicMetadata(d *authz.Decision) *structpb.Struct {
	fields := make(map[string]*structpb.Value, 8)
	for _, f := range facts(d) {
		if f.value != "" {
			fields[f.name] = structpb.NewStringValue(validText(f.value))
		}
	}
	if b := binding(d.Limits); b != nil {
		fields["remaining"] = structpb.NewNumberValue(float64(b.Binding.Decision.Remaining))
	}
	if own := override(d.Identity.Limit); own != nil {
		fields["limit"] = structpb.NewStructValue(own)
	}
	return &structpb.Struct{Fields: fields}
}

// fact is one thing that is told of a decision.
type fact struct{ name, value string }

func facts(d *authz.Decision) [7]fact {
	id := &d.Identity
	return [...]fact{
		{"reason", string(d.Reason)}, {"domain", d.Domain},
		{"owner", id.Owner}, {"plan", id.Plan}, {"method", id.Method}, {"key_id", id.KeyID},
		{"rule", ruleName(binding(d.Limits))},
	}
}

// binding is the status of the descriptor that decided: the one with the tightest limit. It is nil when no limit applied.
func binding(res *ratelimit.Result) *ratelimit.Status {
	if res == nil {
		return nil
	}
	var tightest *ratelimit.Status
	for i := range res.Statuses {
		s := &res.Statuses[i]
		if s.Binding != nil && (tightest == nil || ratelimit.Tighter(s.Binding, tightest.Binding)) {
			tightest = s
		}
	}
	return tightest
}

func ruleName(s *ratelimit.Status) string {
	switch {
	case s == nil:
		return ""
	case s.Rule == nil:
		return "override"
	}
	return s.Rule.Name
}

// override is a limit in the words of Envoy's RateLimitOverride, which has neither weeks nor several units, and drops what it
// does not know: then there is none, rather than another.
func override(l *authz.OwnLimit) *structpb.Struct {
	if l == nil || l.UnitMultiplier > 1 || l.RequestsPerUnit < 0 || l.RequestsPerUnit > math.MaxUint32 ||
		l.Unit == descriptors.UnknownUnit || l.Unit > descriptors.Year {
		return nil
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		"requests_per_unit": structpb.NewNumberValue(float64(l.RequestsPerUnit)),
		"unit":              structpb.NewStringValue(strings.ToUpper(l.Unit.String())),
	}}
}
