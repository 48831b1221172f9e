package service

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// undecided counts requests that the store does not decide, and says why one that can be reached does not: its memory is full, a
// key is not ours, it is slow.
type undecided struct {
	log    *slog.Logger
	counts *telemetry.Undecided
	said   sometimes
}

func newUndecided(log *slog.Logger, r prometheus.Registerer) *undecided {
	reasons := append([]string{canceled, connection}, redisWords...)
	for _, known := range undecidedErrors {
		reasons = append(reasons, known.reason)
	}
	return &undecided{log: log, counts: telemetry.NewUndecided(r, reasons...)}
}

func (u *undecided) tell(err error) {
	reason := undecidedReason(err)
	u.counts.Count(reason)
	if reason == unavailable || reason == canceled {
		return // said when it went away; or nobody waits any more
	}
	if !u.said.now(reason) {
		return
	}
	u.log.Warn("the store did not decide: on_store_error did; said once a minute for each reason", "reason", reason)
}

// Reasons of our own. docs/observability.md explains them all.
const (
	unavailable = "unavailable" // it has not answered lately
	canceled    = "canceled"    // nobody waits any more
	connection  = "connection"  // it broke before the script was sent
)

var undecidedErrors = []struct {
	error
	reason string
}{
	{redisstore.ErrUnavailable, unavailable},
	{redisstore.ErrTooLate, "too_late"},
	{redisstore.ErrBusy, "too_many_waiting"},
	{redisstore.ErrClosed, "closed"},
	{ratelimit.ErrOutcomeUnknown, "unknown_outcome"},
	{context.Canceled, canceled},
}

// redisWords are the first words of what Redis replies in place of an answer, as far as they are worth telling apart, and
// UNREADABLE, which is ours for a value that is not.
var redisWords = []string{
	"BUSY", "CLUSTERDOWN", "ERR", "LOADING", "MASTERDOWN", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY",
	"UNREADABLE", "WRONGPASS", "WRONGTYPE",
}

// undecidedReason is one word, and never what Redis says in full, which may name a client's key.
func undecidedReason(err error) string {
	if script, ok := errors.AsType[*bucket.ScriptError](err); ok {
		return script.Code
	}
	for _, known := range undecidedErrors {
		if errors.Is(err, known.error) {
			return known.reason
		}
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		word, _, _ := strings.Cut(reply.Error(), " ")
		return word
	}
	return connection
}
