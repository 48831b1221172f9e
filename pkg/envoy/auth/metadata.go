package auth

import (
	"math"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/wire"
)

// appendMetadata appends the fields of dynamic_metadata, a google.protobuf.Struct in the namespace of the ext_authz
// filter. Envoy's access logs and later filters can read it. It has reason and domain, and owner, plan, method and
// key_id of a known caller. It has rule and remaining of the tightest limit, and decided_by, the source of the
// decision. It has the limit of the credential, in the format of `limit.dynamic_metadata` in a route's rate_limits.
// Empty values are left out, because a rate limit action uses default_value only for a missing one.
func appendMetadata(b []byte, d *authz.Decision) []byte {
	for _, f := range facts(d) {
		if f.value != "" {
			b = wire.AppendField(b, f.name, f.value)
		}
	}
	if tightest := d.Limits.Tightest(); tightest != nil {
		b = wire.AppendField(b, "remaining", tightest.Binding.Decision.Remaining)
	}
	if l := d.Identity.Limit; expressible(l) {
		b = wire.AppendField(b, "limit", func(b []byte) []byte {
			b = wire.AppendField(b, "requests_per_unit", l.Requests)
			return wire.AppendField(b, "unit", strings.ToUpper(l.Unit.String()))
		})
	}
	return b
}

// fact is one field of a decision for metadata.
type fact struct{ name, value string }

func facts(d *authz.Decision) [8]fact {
	id := &d.Identity
	return [...]fact{
		{"reason", string(d.Reason)}, {"domain", d.Domain},
		{"owner", id.Owner}, {"plan", id.Plan}, {"method", id.Method}, {"key_id", id.KeyID},
		{"rule", d.Limits.Tightest().RuleName()}, {"decided_by", d.Limits.DecidedBy()},
	}
}

// expressible reports whether Envoy can express the limit (RateLimitOverride). Envoy knows neither weeks nor several
// units. It drops what it does not know, which would leave another limit.
func expressible(l *ratelimit.LimitSpec) bool {
	return l != nil && l.Multiplier <= 1 && l.Requests >= 0 && l.Requests <= math.MaxUint32 &&
		l.Unit > descriptors.UnknownUnit && l.Unit <= descriptors.Year
}
