package service

import "github.com/prometheus/client_golang/prometheus"

// Undecided counts, by reason, requests that the store could not decide. It is safe for concurrent use.
type Undecided struct {
	known map[string]prometheus.Counter
	other prometheus.Counter
}

// NewUndecided registers the metric. Reasons that are not among these count as "other": a server can reply what it likes.
func NewUndecided(r prometheus.Registerer, reasons ...string) *Undecided {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "extauthz_store_undecided_total", Help: "Requests that the store could not decide, by reason.",
	}, []string{"reason"})
	r.MustRegister(requests)
	u := &Undecided{known: make(map[string]prometheus.Counter), other: requests.WithLabelValues("other")}
	for _, reason := range reasons {
		u.known[reason] = requests.WithLabelValues(reason)
	}
	return u
}

// Count counts one request.
func (u *Undecided) Count(reason string) {
	c := u.known[reason]
	if c == nil {
		c = u.other
	}
	c.Inc()
}
