package migrate

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// filterName is the filter that is converted.
const filterName = "RequestRateLimiter"

// SpringLimit is a filter RequestRateLimiter with its RedisRateLimiter. The zero value is no limit.
type SpringLimit struct {
	// Rate, Burst and Tokens are replenishRate, burstCapacity and requestedTokens.
	Rate, Burst, Tokens int64
	// Key is by what the route limits, Empty what happens to requests without a key.
	Key   SpringKey
	Empty EmptyKey
	// DeniedStatus is the status of a denial.
	DeniedStatus int

	filter *strictyaml.Value
}

// Limited reports whether there is a limit.
func (l *SpringLimit) Limited() bool { return l.Tokens > 0 }

// properties reads the properties that are the same for all routes.
func (s *spring) properties() {
	s.headers = "spring"
	if v := s.property("redisratelimiter", "includeheaders"); !v.IsAbsent() && !s.boolean(v, "include-headers", true) {
		s.headers = "off"
	}
	for _, name := range []string{"remaining", "replenishrate", "burstcapacity", "requestedtokens"} {
		if v := s.property("redisratelimiter", name+"header"); !v.IsAbsent() {
			s.renamed = true
			s.Warn(v, "this header has the name of Spring's default here", "RESPONSE_HEADER_NAMES names it: docs/headers.md")
		}
	}
	s.empty = s.emptyKey(EmptyKey{Status: http.StatusForbidden},
		s.property("filter", "requestratelimiter", "denyemptykey"),
		s.property("filter", "requestratelimiter", "emptykeystatuscode"))
}

// EmptyKey is what happens to requests without a key: they pass without a limit, or are refused with a status.
type EmptyKey struct {
	Pass   bool
	Status int
}

// emptyKey returns what happens to requests without a key. Properties that are not set do not change it.
func (s *spring) emptyKey(e EmptyKey, deny, status *strictyaml.Value) EmptyKey {
	if !deny.IsAbsent() {
		e.Pass = !s.boolean(deny, "deny-empty-key", true)
	}
	if status.IsAbsent() {
		return e
	}
	code, ok := refusalStatus(status.Text())
	if !ok {
		s.Document.Fail(status, "the status for an empty key cannot be "+status.String(),
			"want a status from 400 to 599, such as 403")
		return e
	}
	e.Status = code
	return e
}

// refusalStatus reads a status of a refusal: its number, or its name as Spring has it.
func refusalStatus(text string) (code int, ok bool) {
	if code, err := strconv.Atoi(text); err == nil {
		return code, code >= 400 && code <= 599
	}
	for code := 400; code < 600; code++ {
		name := strings.NewReplacer(" ", "_", "-", "_").Replace(http.StatusText(code))
		if name != "" && strings.EqualFold(name, text) {
			return code, true
		}
	}
	return 0, false
}

// checkEmpty sets what happens to requests without a key. It reports routes that do another thing.
func (s *spring) checkEmpty() {
	var first *SpringLimit
	for _, r := range s.routes {
		switch {
		case !r.Limited():
		case first == nil:
			first, s.empty = &r.SpringLimit, r.Empty
		case r.Empty != first.Empty:
			s.Fail(r.filter, "this route does another thing with requests without a key than the one at "+s.At(first.filter),
				"a policy has one `absent`: make them the same, or write a policy for each domain")
		}
	}
}

// defaultLimiter returns the limiter of `default-filters`, nil for none.
func (s *spring) defaultLimiter() *SpringLimit {
	list := s.property("defaultfilters")
	s.failed = false
	l, count := s.filters(list, "defaultFilters")
	if count > 1 {
		s.Fail(list, "`default-filters` has two filters RequestRateLimiter", "write their limits by hand, as `limits`")
	}
	s.lost = s.failed
	return l
}

// filters returns a limiter of a list of filters, and their number. id names the route in `redis-rate-limiter.config`.
func (s *spring) filters(list *strictyaml.Value, id string) (l *SpringLimit, count int) {
	for _, v := range list.Items() {
		name, shortcut := v.Text(), false
		if v.IsMap() {
			name = find(v, "name").Text()
		} else {
			name, _, shortcut = strings.Cut(name, "=")
		}
		switch {
		case strings.TrimSpace(name) != filterName:
			continue
		case shortcut:
			s.Fail(v, "RequestRateLimiter has no shortcut form: Spring ignores these values",
				"write it with `name:` and `args:` there, and convert again")
			continue
		}
		count++
		l = cmp.Or(s.limiter(v, find(v, "args"), id), l)
	}
	return l, count
}

// limiter reads one filter. It returns nil if the filter has no equivalent, which it reports.
func (s *spring) limiter(v, args *strictyaml.Value, id string) *SpringLimit {
	if bean := find(args, "ratelimiter"); !bean.IsAbsent() {
		s.Fail(bean, "the rate limiter "+bean.String()+" is Java code, which this command cannot read",
			"write its limit by hand: docs/migration/from-spring-cloud-gateway.md")
		return nil
	}
	if !find(args, "bucket4jratelimiter", "capacity").IsAbsent() {
		s.Fail(v, "a limit of Bucket4j is not converted",
			"write it by hand: capacity is `burst`, refillTokens is `requests_per_unit`, refillPeriod is the unit")
		return nil
	}
	l := &SpringLimit{filter: v}
	config := func(name string) *strictyaml.Value {
		if v := find(args, "redisratelimiter", name); !v.IsAbsent() {
			return v
		}
		return s.property("redisratelimiter", "config", canonical(id), name)
	}
	rate := config("replenishrate")
	if rate.IsAbsent() {
		s.Fail(v, "this filter has no `redis-rate-limiter.replenishRate` in the file",
			"if a bean of Java code sets it, write the limit by hand: docs/migration/from-spring-cloud-gateway.md")
		return nil
	}
	l.Rate = s.number(rate, "replenishRate", 1)
	l.Burst = s.optional(config("burstcapacity"), "burstCapacity", 0, 1)
	l.Tokens = s.optional(config("requestedtokens"), "requestedTokens", 1, 1)
	if l.Burst > 0 {
		s.checkLimit(l, rate)
	}
	l.Empty, l.DeniedStatus = s.answers(args)
	l.Key = s.resolver(find(args, "keyresolver"))
	if s.failed {
		return nil
	}
	return l
}

// answers reads the arguments about refusals: what happens to requests without a key, and the status of a denial.
func (s *spring) answers(args *strictyaml.Value) (empty EmptyKey, denied int) {
	denied = http.StatusTooManyRequests
	if v := find(args, "statuscode"); !v.IsAbsent() && v.Text() != "429" && v.Text() != "TOO_MANY_REQUESTS" {
		if code, ok := refusalStatus(v.Text()); ok {
			denied = code
		}
		s.Warn(v, "a denial has status 429 here", "`status` in its `rate_limit` sets another one: docs/headers.md")
	}
	return s.emptyKey(s.empty, find(args, "denyemptykey"), find(args, "emptykeystatus")), denied
}

// checkLimit reports a limit that cannot be counted.
func (s *spring) checkLimit(l *SpringLimit, at *strictyaml.Value) {
	if _, err := l.spec().Bucket(); err != nil {
		s.Fail(at, err.Message, "write smaller numbers")
	} else if l.Tokens > l.Burst {
		s.Warn(l.filter, fmt.Sprintf("a request costs %d tokens and the bucket has %d: every request is denied, as in Spring",
			l.Tokens, l.Burst))
	}
}

// spec returns the limit. A bucket without capacity denies everything.
func (l *SpringLimit) spec() ratelimit.LimitSpec {
	spec := ratelimit.LimitSpec{
		Requests: l.Rate, Unit: descriptors.Second, Algorithm: bucket.TokenBucket, Burst: l.Burst,
	}
	if l.Burst == 0 {
		spec.Requests = 0
	}
	return spec
}

// optional reads a whole number that has a default.
func (s *spring) optional(v *strictyaml.Value, name string, least, standard int64) int64 {
	if v.IsAbsent() {
		return standard
	}
	return s.number(v, name, least)
}

// boolean reads true or false. It returns the default for any other value, which it reports.
func (s *spring) boolean(v *strictyaml.Value, name string, standard bool) bool {
	b, err := strconv.ParseBool(strings.ToLower(v.Text()))
	if err != nil {
		s.Document.Fail(v, suggest.Quoted(name)+" cannot be "+v.String(), "want `true` or `false`")
		return standard
	}
	return b
}
