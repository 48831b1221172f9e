package redisstore_test

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

func TestReason(t *testing.T) {
	for want, err := range map[string]error{
		"READONLY":        replyError("READONLY You can't write against a read only replica."),
		"connection":      &net.OpError{Op: "dial", Err: errors.New("connection refused")},
		"unknown_outcome": fmt.Errorf("redis: %w: %w", ratelimit.ErrOutcomeUnknown, replyError("ERR at client:key")),
	} {
		if got := redisstore.Reason(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// replyError is an error reply of Redis.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}
