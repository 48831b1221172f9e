package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// undecidedEvery is how often the same reason is said; store_errors_total counts every request.
const undecidedEvery = time.Minute

// undecidedLog says why a store that can be reached does not decide: its memory is full, a key is not ours, it is slow.
type undecidedLog struct {
	log *slog.Logger

	mu   sync.Mutex
	said map[string]time.Time
}

func newUndecidedLog(log *slog.Logger) *undecidedLog {
	return &undecidedLog{log: log, said: make(map[string]time.Time)}
}

func (u *undecidedLog) tell(err error) {
	if errors.Is(err, redisstore.ErrUnavailable) || errors.Is(err, context.Canceled) {
		return // said when it went away; or nobody waits any more
	}
	reason := undecidedReason(err)
	u.mu.Lock()
	defer u.mu.Unlock()
	if last, ok := u.said[reason]; ok && time.Since(last) < undecidedEvery {
		return
	}
	u.said[reason] = time.Now()
	u.log.Warn("the store did not decide: on_store_error did; said once a minute for each reason", "reason", reason)
}

// undecidedReason is one of a few words, and never what Redis says in full, which may name a client's key.
func undecidedReason(err error) string {
	if script, ok := errors.AsType[*bucket.ScriptError](err); ok {
		return script.Code
	}
	for _, known := range []error{redisstore.ErrTooLate, redisstore.ErrBusy, redisstore.ErrClosed, ratelimit.ErrOutcomeUnknown} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		code, _, _ := strings.Cut(reply.Error(), " ")
		return code
	}
	return "connection"
}
