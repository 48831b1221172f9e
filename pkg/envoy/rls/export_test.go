package rls

import "github.com/extauthz/extauthz/pkg/ratelimit"

// Parts exports parts for tests.
type Parts struct{ parts parts }

// Unmarshal reads a message, and ends the queries before.
func (p *Parts) Unmarshal(msg string) (q ratelimit.Query, err error) {
	p.parts.reset()
	err = p.parts.unmarshal(msg, &q)
	return q, err
}

// Unmarshal exports unmarshal for tests.
func Unmarshal(msg string) (ratelimit.Query, error) { return new(Parts).Unmarshal(msg) }
