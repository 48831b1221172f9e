package rls

import "github.com/extauthz/extauthz/pkg/ratelimit"

// Unmarshal reads a message into new memory, for tests.
func Unmarshal(msg string) (q ratelimit.Query, err error) {
	err = new(Memory).Unmarshal(msg, &q)
	return q, err
}
