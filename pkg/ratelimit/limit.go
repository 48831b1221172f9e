package ratelimit

import (
	"cmp"
	"slices"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Limit is `rate_limit:`, or an element of `limits:`. The zero value of a field means that the source does not set it.
// A pointer distinguishes the two where zero is a value.
type Limit struct {
	Unit descriptors.Unit `yaml:"unit" doc:"The unit of the window. A month has 30 days, a year 365." example:"minute"`
	// Multiplier has 64 bits, so that Check can report one that is too large.
	Multiplier int64      `yaml:"unit_multiplier" doc:"The number of units in a window." default:"1" min:"1"`
	Requests   *int64     `yaml:"requests_per_unit" doc:"How many hits pass in a window; 0 is none." min:"0" example:"100"`
	Unlimited  bool       `yaml:"unlimited" doc:"No limit. Only name and replaces can be beside it." default:"false"`
	Name       string     `yaml:"name" doc:"Its name in headers, and in the label limit of metrics. Counters have the label rule instead." default:"name of the rule" example:"per-key"`
	Replaces   []Replaced `yaml:"replaces" doc:"Limits that do not apply to a request to which this limit applies."`

	Algorithm bucket.Algorithm `yaml:"algorithm" also:"concurrency" doc:"How it counts. See DEFAULT_ALGORITHM." default:"sliding_window"`
	Calendar  *string          `yaml:"calendar" doc:"The time zone in which a day, week, month or year begins." default:"windows of equal length, aligned to 1970 in UTC" example:"Europe/Berlin"`
	Burst     int64            `yaml:"burst" doc:"The capacity of the bucket." min:"1" default:"requests per unit"`

	// CountDenied is nil if the source does not set it: then only costs that a request states explicitly are charged.
	CountDenied *bool `yaml:"count_denied" doc:"Whether denied hits are charged." default:"only an explicit hits_addend"`

	OnStoreError StoreErrorPolicy `yaml:"on_store_error" doc:"Who decides if Redis does not." default:"local"`
	HashTag      string           `yaml:"hash_tag" doc:"The entry that chooses the slot of a Redis Cluster."`

	Override *Override `yaml:"override" doc:"Lets a limit that a request or credential brings replace this one." default:"not replaced by that of a credential"`

	Lease int64 `yaml:"lease" doc:"How many hits a replica charges in advance for a hot key." default:"0" min:"1" example:"10"`

	Hold *HoldTerms `yaml:"hold" doc:"Lets requests reserve hits under an id, and settle them with the real cost." default:"no holds"`

	MaxDelay time.Duration `yaml:"max_delay" doc:"How long a request may be held: token_bucket, leaky_bucket. At most 1m." default:"0s"`
	// Shadow is for an element of limits. Check refuses it in rate_limit, where envoyproxy/ratelimit ignores it.
	Shadow  bool           `yaml:"shadow_mode" doc:"In limits: decides and counts, but never denies." default:"false"`
	Enforce *Enforce       `yaml:"enforce" doc:"Enforces the limit for a part of the requests. It is in shadow for the others." default:"for all"`
	Problem *ProblemDetail `yaml:"problem" doc:"What the body of a denial says." default:"the usual text"`
	Status  int            `yaml:"status" min:"400" max:"599" doc:"The HTTP status of a denial by ext_authz." default:"RESPONSE_STATUS" example:"403"`
	Headers Headers        `yaml:"headers" doc:"Own headers of answers, by name; or off, which hides the limit from clients." example:"{X-Quota: \"{used}/{limit}\"}"`
	// Position is the position of the limit, "file:line", for messages.
	Position string `yaml:",position"`
}

// Replaced names a limit of the same domain.
type Replaced struct {
	Name string `yaml:"name" doc:"The name of the other limit." example:"default" required:"true"`
}

func (r Replaced) String() string { return r.Name }

// ProblemDetail is the template of a problem detail (RFC 9457). Title and Detail can have placeholders. {retry_after}
// is the number of seconds until the request would pass, or "never". {limit} is the number of requests in a window,
// {window} its seconds, and {policy} the name of the limit. A limit of concurrency has no {window}. An
// empty text keeps the usual one.
type ProblemDetail struct {
	Type   string `yaml:"type" doc:"A URI for the kind of problem." example:"https://shop.example/too-many"`
	Title  string `yaml:"title" doc:"A short summary." example:"Too many requests for {policy}"`
	Detail string `yaml:"detail" doc:"An explanation for the client." example:"Again in {retry_after} s."`
}

// defaults are how limits are counted that do not determine it themselves.
type defaults struct {
	algorithm bucket.Algorithm
	// zone is the calendar of days, weeks, months and years, and months is RulesOptions.CalendarMonths.
	zone   string
	months bool
}

// apply completes a limit. Several months or another algorithm get no calendar: in a rule, both are mistakes.
func (d defaults) apply(s LimitSpec) LimitSpec {
	if d.zone == "" && d.months && s.Unit == descriptors.Month {
		d.zone = time.UTC.String()
	}
	if s.Calendar == "" && s.Multiplier <= 1 && slices.Contains(bucket.CalendarUnits, s.Unit.String()) &&
		(s.Algorithm == 0 || s.Algorithm == bucket.FixedWindow) {
		s.Calendar = d.zone
	}
	if s.Calendar != "" {
		d.algorithm = bucket.FixedWindow
	}
	s.Algorithm = cmp.Or(s.Algorithm, d.algorithm, bucket.SlidingWindow)
	return s
}

// spec returns how the limit is counted. It replaces a negative multiplier, which Check reports, by 1.
func (l *Limit) spec(d defaults) LimitSpec {
	spec := LimitSpec{Unit: l.Unit, Multiplier: uint64(max(1, l.Multiplier)), Algorithm: l.Algorithm, Burst: l.Burst}
	if l.Calendar != nil {
		spec.Calendar = *l.Calendar
	}
	if l.Requests != nil {
		spec.Requests = *l.Requests
	}
	return d.apply(spec)
}

// maxQueueTime bounds Limit.MaxDelay: Envoy and its client keep a request open that long.
const maxQueueTime = time.Minute

// queueTime returns how many units of a bucket leak within a time, and the time in which these leak, in µs. The time
// is rounded up, so that no fewer units leak in it. The limit must have requests.
func queueTime(l bucket.Limit, within time.Duration) (units, micros int64) {
	units = within.Microseconds() * l.Requests / l.Window // at most a minute times bucket.MaxRequests
	return units, unitTime(l, units)
}

// withQueue returns the limit by which a bucket accepts a request of one hit if so many units wait before it.
func withQueue(l bucket.Limit, units int64) bucket.Limit {
	t := bucket.Take{Limit: l, Cost: 1}
	t.Queue(units)
	return t.Limit
}

// unitTime returns the time in which this many units leak, in µs and rounded up.
func unitTime(l bucket.Limit, units int64) int64 {
	return (units*l.Window + l.Requests - 1) / l.Requests
}

// StoreErrorPolicy decides requests that the store could not decide (on_store_error, STORE_ERROR_POLICY).
type StoreErrorPolicy uint8

// The policies, in order of precedence if the limits of one request differ.
const (
	// Deny denies every request.
	Deny StoreErrorPolicy = iota + 1
	// Local decides in the memory of this process, from the last state that the store has shown.
	Local
	// Allow lets every request pass.
	Allow
)

// String returns the name used in rule files.
func (p StoreErrorPolicy) String() string {
	return [...]string{"unset", Deny: "deny", Local: "local", Allow: "allow"}[p]
}

// known reports whether the policy is one of the three.
func (p StoreErrorPolicy) known() bool { return p >= Deny && p <= Allow }

// Words lists the texts that UnmarshalText accepts.
func (StoreErrorPolicy) Words() []string { return []string{"local", "allow", "deny"} }

// UnmarshalText accepts the name of a policy.
func (p *StoreErrorPolicy) UnmarshalText(text []byte) (err error) {
	*p, err = suggest.Value(text, p.Words(), Local, Allow, Deny)
	return err
}
