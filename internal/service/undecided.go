package service

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// undecided counts requests that the store cannot decide. It logs why a reachable Redis cannot, for example because its
// memory is full, a key has another type, or it is slow.
type undecided struct {
	log    *slog.Logger
	counts map[string]prometheus.Counter // by reason; "other" for an unknown error of a server
	logged logLimiter
}

func newUndecided(log *slog.Logger, r prometheus.Registerer) *undecided {
	u := &undecided{log: log, counts: make(map[string]prometheus.Counter)}
	counts := promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "extauthz_store_undecided_total", Help: "Requests that the store could not decide, by reason.",
	}, []string{"reason"})
	for _, reason := range append(redisstore.Reasons(), "other") {
		u.counts[reason] = counts.WithLabelValues(reason)
	}
	return u
}

func (u *undecided) observe(err error) {
	reason := redisstore.Reason(err)
	count, known := u.counts[reason]
	if !known {
		count = u.counts["other"]
	}
	count.Inc()
	if errors.Is(err, redisstore.ErrUnavailable) || errors.Is(err, context.Canceled) {
		return // the log has a line about an unreachable Redis; a canceled request is no error of the store
	}
	if u.logged.allow(reason) {
		u.log.Warn("Redis did not decide; on_store_error applied (logged once a minute for each reason)", "reason", reason)
	}
}
