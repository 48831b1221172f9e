package redisstore

import (
	"context"
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

// reasonConnection is the reason of an error that nothing else explains: the connection broke before the script was sent.
const reasonConnection = "connection"

// reasonOf are the reasons of errors that are not replies of Redis.
var reasonOf = []struct {
	error
	reason string
}{
	{ErrUnavailable, "unavailable"},
	{ErrTooLate, "too_late"},
	{ErrBusy, "too_many_waiting"},
	{ErrClosed, "closed"},
	{ratelimit.ErrOutcomeUnknown, "unknown_outcome"},
	{context.Canceled, "canceled"},
}

// replyWords are the first words of the error replies that Reasons lists. UNREADABLE is not of Redis but of the script, for a value that is
// no bucket.
var replyWords = []string{
	"BUSY", "CLUSTERDOWN", "ERR", "LOADING", "MASTERDOWN", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY",
	"UNREADABLE", "WRONGPASS", "WRONGTYPE",
}

// Reasons returns the words that Reason usually returns.
func Reasons() []string {
	reasons := append([]string{reasonConnection}, replyWords...)
	for _, known := range reasonOf {
		reasons = append(reasons, known.reason)
	}
	return reasons
}

// Reason returns why the store could not decide a request, given the error of the request, in one word for metrics and logs. It never
// returns a whole reply of Redis, because that may hold a client's key.
func Reason(err error) string {
	if script, ok := errors.AsType[*bucket.ScriptError](err); ok {
		return script.Code
	}
	for _, known := range reasonOf {
		if errors.Is(err, known.error) {
			return known.reason
		}
	}
	if word := code(err); word != "" {
		return word
	}
	return reasonConnection
}

// permissions are what a user of Redis needs in order to decide, and to read and change API keys (authz/rediskeys).
const permissions = "+evalsha +eval +script|load +get +set +del +time +ping +hello +auth +hget +hscan +hlen +hstrlen"

// LoginHelp returns how to set up the user of Redis if that is what an error of Ping is about, else "". Keys begin with the prefix.
func LoginHelp(err error, prefix string) string {
	for _, word := range []string{"NOAUTH", "WRONGPASS", "NOPERM", "ERR invalid password", "ERR AUTH", "ERR unknown command"} {
		if strings.Contains(err.Error(), word) {
			return "the user needs ACL SETUSER <user> on ><password> ~" + prefix + "* " + permissions
		}
	}
	return ""
}
