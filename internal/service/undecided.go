package service

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// observeUndecided returns a function that counts requests that the store cannot decide. It logs why a reachable Redis
// cannot, for example because its memory is full, a key has another type, or it is slow.
func observeUndecided(log *slog.Logger, r prometheus.Registerer) func(error) {
	var logged logLimiter
	counts := map[string]prometheus.Counter{} // by reason; "other" for an unknown error of a server
	byReason := promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "extauthz_store_undecided_total", Help: "Requests that the store could not decide, by reason.",
	}, []string{"reason"})
	for _, reason := range append(redisstore.Reasons(), "other") {
		counts[reason] = byReason.WithLabelValues(reason)
	}
	return func(err error) {
		reason := redisstore.Reason(err)
		cmp.Or(counts[reason], counts["other"]).Inc()
		if errors.Is(err, redisstore.ErrUnavailable) || errors.Is(err, context.Canceled) {
			return // the log has a line about an unreachable Redis; a canceled request is no error of the store
		}
		if logged.allow(reason) {
			log.Warn("Redis did not decide; on_store_error applied (logged once a minute for each reason)", "reason", reason)
		}
	}
}
