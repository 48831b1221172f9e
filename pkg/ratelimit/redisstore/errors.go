package redisstore

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// refusals are the error replies that Redis gives instead of running a script, by their first word. Any other error reply
// may come from within the script.
var refusals = []string{
	"NOSCRIPT", "LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "MISCONF", "OOM", "NOAUTH", "NOPERM", "WRONGPASS",
	"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "CROSSSLOT",
}

// notRunError is an error from before the script was sent.
type notRunError struct{ error }

func (e *notRunError) Unwrap() error { return e.error }

// nobodyThere reports whether no connection could be made, which the next request would find the same: refused, no host of this
// name, as of a container that has stopped, or no way to it. A network that is silent may only have lost a packet.
func nobodyThere(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial" && !dial.Timeout()
}

// notRun reports whether the error proves that the script has not run.
func notRun(err error) bool {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return true
	}
	if _, ok := errors.AsType[*notRunError](err); ok {
		return true
	}
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed) || slices.Contains(refusals, code(err))
}

// code is the first word of what Redis replied, "" when the error is not a reply.
func code(err error) string {
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return ""
	}
	word, _, _ := strings.Cut(reply.Error(), " ")
	return word
}

// explain is the error of one request: one that may have been charged by half has an unknown outcome.
func explain(err error) error {
	if failed, ok := errors.AsType[*bucket.ScriptError](err); ok && failed.Partly {
		return fmt.Errorf("redis: %w: %w", ratelimit.ErrOutcomeUnknown, err)
	}
	return err
}
