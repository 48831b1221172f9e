package service

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// undecided counts requests that the store does not decide, and logs why a Redis that can be reached does not: its memory is full, a
// key is not ours, it is slow.
type undecided struct {
	log    *slog.Logger
	counts *Undecided
	said   sometimes
}

func newUndecided(log *slog.Logger, r prometheus.Registerer) *undecided {
	return &undecided{log: log, counts: NewUndecided(r, redisstore.Reasons()...)}
}

func (u *undecided) tell(err error) {
	reason := redisstore.Reason(err)
	u.counts.Count(reason)
	if errors.Is(err, redisstore.ErrUnavailable) || errors.Is(err, context.Canceled) {
		return // the log has a line from when Redis became unreachable; a client that has gone is no problem of the store
	}
	if u.said.now(reason) {
		u.log.Warn("Redis did not decide; on_store_error applied (logged once a minute for each reason)", "reason", reason)
	}
}
