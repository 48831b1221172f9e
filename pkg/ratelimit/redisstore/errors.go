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

// refusals are the error replies, by their first word, that Redis gives instead of running a script. Any other error
// reply may come from within the script.
var refusals = []string{
	"NOSCRIPT", "LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "MISCONF", "OOM", "NOAUTH", "NOPERM",
	"WRONGPASS", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "CROSSSLOT",
}

// cannotConnect reports whether a connection attempt failed for a lasting reason: refused, unknown host name or no
// route. A timeout is no such reason, because the network may have lost one packet.
func cannotConnect(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial" && !dial.Timeout()
}

// notRun reports whether the error proves that the script has not run.
func notRun(err error) bool {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return true
	}
	return errors.Is(err, errNotConnected) || errors.Is(err, errNotSent) || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.Is(err, redis.ErrClosed) || IsNoMaster(err) ||
		slices.Contains(refusals, code(err))
}

// code returns the first word of the reply of Redis, "" if the error is not a reply.
func code(err error) string {
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return ""
	}
	word, _, _ := strings.Cut(reply.Error(), " ")
	return word
}

// elsewhere reports whether the error is the reply of a healthy node that does not have a slot, or not alone.
func elsewhere(err error) bool {
	return slices.Contains([]string{"MOVED", "ASK", "TRYAGAIN"}, code(err)) ||
		code(err) == "CLUSTERDOWN" && !isClusterDown(err)
}

// isClusterDown reports whether the error is the reply of a node whose cluster has lost a part, or that is cut off from
// the cluster. A reply about a single slot is not meant.
func isClusterDown(err error) bool {
	return code(err) == "CLUSTERDOWN" && redis.HasErrorPrefix(err, "CLUSTERDOWN The cluster")
}

// isLogin reports whether the error is about the login, which an operator must fix. Redis is reachable then.
func isLogin(err error) bool {
	return slices.Contains([]string{"NOAUTH", "WRONGPASS", "NOPERM"}, code(err))
}

// explain returns the error of one request. The outcome is unknown after a part of a charge or an unreadable answer.
func explain(err error) error {
	if failed, ok := errors.AsType[*bucket.ScriptError](err); err == nil || ok && !failed.Partly {
		return err
	}
	return fmt.Errorf("redis: %w: %w", ratelimit.ErrOutcomeUnknown, err)
}

// reasonConnection is the reason of all other errors: the connection broke before the script was sent.
const reasonConnection = "connection"

// reasonOf has the reasons of errors that are not replies of Redis.
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

// replyWords are the first words of the error replies that Reasons lists. The script, not Redis, returns UNREADABLE
// for a value that is not a bucket.
var replyWords = []string{
	"BUSY", "CLUSTERDOWN", "ERR", "LOADING", "MASTERDOWN", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM",
	"READONLY", "UNREADABLE", "WRONGPASS", "WRONGTYPE",
}

// Reasons returns the words that Reason usually returns.
func Reasons() []string {
	reasons := append([]string{reasonConnection}, replyWords...)
	for _, known := range reasonOf {
		reasons = append(reasons, known.reason)
	}
	return reasons
}

// Reason returns one word for metrics and logs: why the store could not decide a request with this error. It never
// returns a whole reply of Redis, because a reply may hold a client's key.
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

// IsNoCluster reports whether an error of Ping is that a Redis is no cluster.
func IsNoCluster(err error) bool {
	return strings.Contains(err.Error(), "This instance has cluster support disabled")
}

// IsNoMaster reports whether an error of Ping is that all sentinels answer, and none knows a master of the name.
func IsNoMaster(err error) bool { return errors.Is(err, redis.Nil) && !cannotConnect(err) }

// permissions are the commands that a Redis user needs to decide, also with holds, count replicas and read API keys
// (authz/rediskeys).
const permissions = "+evalsha +eval +script|load +get +set +del +time +ping +info +hello +auth " +
	"+zadd +zcard +zremrangebyscore +pexpire +hget +hscan +hlen +hstrlen +hset +hdel +hgetall"

// ACL returns the command that gives a Redis user the rights that it needs. Keys begin with the prefix.
func ACL(prefix string) string {
	return "ACL SETUSER <user> on ><password> ~" + prefix + "* " + permissions
}

// LoginHelp returns how to set up the Redis user if an error is about it, else "". Keys begin with the prefix.
func LoginHelp(err error, prefix string) string {
	about := []string{
		"NOAUTH", "WRONGPASS", "NOPERM", "ERR invalid password", "ERR AUTH", "ERR unknown command",
		"ACL failure in script", "The user executing the script can't", // the second one by Redis 7.0
	}
	if !slices.ContainsFunc(about, func(word string) bool { return strings.Contains(err.Error(), word) }) {
		return ""
	}
	return "the user needs " + ACL(prefix) +
		"; in a cluster also +asking +cluster|slots; a user of Sentinel needs +ping +hello +auth " +
		"+sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe &+switch-master &+selected-slave"
}
