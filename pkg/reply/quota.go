package reply

import (
	"encoding/json"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// QuotaType is the media type of AppendQuota's body.
const QuotaType = "application/json"

// quota is what a client reads of one of its limits. Window and Reset are in seconds.
type quota struct {
	Name      string `json:"name"`
	Limit     int64  `json:"limit"`
	Burst     int64  `json:"burst,omitempty"`  // the capacity, if that is not Limit
	Window    int64  `json:"window,omitempty"` // none for concurrency
	Used      int64  `json:"used"`
	Remaining int64  `json:"remaining"`
	Reset     int64  `json:"reset"` // until nothing is used
}

// AppendQuota appends the limits of a result of a Dry query that its client may see, the tightest first. It leaves out
// what the headers leave out: limits in shadow and hidden ones. A nil result has none.
func AppendQuota(b []byte, res *ratelimit.Result) []byte {
	body := struct {
		Limits []quota `json:"limits"`
	}{[]quota{}}
	if res != nil {
		for _, a := range appendShown(nil, res) {
			l := a.Limit
			q := quota{
				Name: l.Policy, Limit: l.Requests, Window: ratelimit.Seconds(a.Window()),
				Used: a.Bucket.Used + a.Bucket.Holds.Units(), Remaining: a.Decision.Remaining,
				Reset: ratelimit.Seconds(a.Decision.ResetAfter),
			}
			if capacity := l.Capacity(); capacity != l.Requests {
				q.Burst = capacity
			}
			body.Limits = append(body.Limits, q)
		}
	}
	text, _ := json.Marshal(body) // no error: texts and numbers
	return append(b, text...)
}
