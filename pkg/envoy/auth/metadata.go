package auth

import (
	"math"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/envoy/wire"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// appendMetadata appends the fields of dynamic_metadata, a google.protobuf.Struct: what Envoy's access logs and later filters learn of
// a decision, in the namespace of the ext_authz filter:
// reason, domain; owner, plan, method and key_id when it is known who asks; rule and remaining of the limit that binds; and the
// limit that a credential brings, as `limit.dynamic_metadata` of a route's rate_limits wants it. Nothing of it has no value: a
// rate limit action takes default_value only for what is not there.
func appendMetadata(b []byte, d *authz.Decision) []byte {
	for _, f := range facts(d) {
		if f.value != "" {
			b = wire.AppendTextField(b, f.name, f.value)
		}
	}
	if tightest := d.Limits.Binding(); tightest != nil {
		b = wire.AppendNumberField(b, "remaining", float64(tightest.Binding.Decision.Remaining))
	}
	if l := d.Identity.Limit; overrides(l) {
		b = wire.AppendStructField(b, "limit", func(b []byte) []byte {
			b = wire.AppendNumberField(b, "requests_per_unit", float64(l.Requests))
			return wire.AppendTextField(b, "unit", strings.ToUpper(l.Unit.String()))
		})
	}
	return b
}

// fact is one thing that is told of a decision.
type fact struct{ name, value string }

func facts(d *authz.Decision) [7]fact {
	id := &d.Identity
	return [...]fact{
		{"reason", string(d.Reason)}, {"domain", d.Domain},
		{"owner", id.Owner}, {"plan", id.Plan}, {"method", id.Method}, {"key_id", id.KeyID},
		{"rule", d.Limits.Binding().RuleName()},
	}
}

// overrides reports whether Envoy can say the limit (RateLimitOverride): it knows neither weeks nor several units, and what it
// does not know it drops, which would leave another limit.
func overrides(l *ratelimit.LimitSpec) bool {
	return l != nil && l.Multiplier <= 1 && l.Requests >= 0 && l.Requests <= math.MaxUint32 &&
		l.Unit > descriptors.UnknownUnit && l.Unit <= descriptors.Year
}
