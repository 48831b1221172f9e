package h2unary

import (
	"slices"
	"time"

	"golang.org/x/net/http2"

	"github.com/extauthz/extauthz/internal/guard"
)

// Frames that are no part of a request cost a connection credit. These are PING, SETTINGS, PRIORITY, WINDOW_UPDATE,
// empty DATA, CONTINUATION, and unknown frames. A request gains more than the frames cost that known clients add.
const (
	beginCredit = 1_000
	maxCredit   = 10_000
	perRequest  = 10
	perSecond   = 100
)

// Bounds of what a client breaks in a minute.
const (
	// maxStreamErrors is how many streams the server resets because of what the client has sent. Such resets make the
	// server work for nothing, as resets of the client do (MadeYouReset).
	maxStreamErrors = 100
	// maxRapidResets is how many rapid resets the client may send, if they are more than half of its requests. A reset is
	// rapid if the server would have had an answer within the time rapid of the request, or reads both at once. Clients
	// that lose interest reset some requests. A client whose calls time out may reset all of them, but then the server was
	// slow, or stood still.
	maxRapidResets = 1_000
	rapid          = 5 * time.Millisecond
)

// budget bounds what a client may do that is no request.
type budget struct {
	credit       int
	streamErrors int
	requests     int
	rapidResets  int
	refilled     time.Time
	minute       time.Time // Errors and resets are counted in the minute that began then.
}

// refill gives credit for the time that has passed.
func (b *budget) refill(now time.Time) {
	if passed := now.Sub(b.refilled); passed >= time.Second {
		b.credit = min(maxCredit, b.credit+perSecond)
		b.refilled = now
	}
	if now.Sub(b.minute) >= time.Minute {
		b.streamErrors, b.requests, b.rapidResets, b.minute = 0, 0, 0, now
	}
}

// begin counts a request, which gains credit.
func (b *budget) begin() {
	b.requests++
	b.credit = min(maxCredit, b.credit+perRequest)
}

// charge charges a frame, and fails if there is no credit.
func (b *budget) charge(debug string) *failure {
	if b.credit--; b.credit >= 0 {
		return nil
	}
	return &failure{http2.ErrCodeEnhanceYourCalm, guard.Flood, debug}
}

// breakStream resets a stream because of what the client has sent. c.mu is held.
func (c *Conn) breakStream(k *Call, code http2.ErrCode) *failure {
	c.resetCall(k, code)
	return c.countStreamError()
}

func (c *Conn) countStreamError() *failure {
	if c.budget.streamErrors++; c.budget.streamErrors > maxStreamErrors {
		return &failure{http2.ErrCodeEnhanceYourCalm, guard.StreamErrors, "too many broken requests"}
	}
	return nil
}

// receiveReset handles RST_STREAM. c.mu is held.
func (c *Conn) receiveReset(f *frame) *failure {
	switch {
	case len(f.payload) != 4:
		return broken(http2.ErrCodeFrameSize, "RST_STREAM of a wrong length")
	case f.stream == 0 || c.streams.idle(f.stream):
		return broken(http2.ErrCodeProtocol, "RST_STREAM of no stream")
	}
	k := c.calls[f.stream]
	if k == nil || k.state == reset {
		return c.budget.charge("too many resets")
	}
	i := slices.Index(c.batch, k)
	if (i >= 0 || k.state == arriving) && !c.stoodStill() { // The call has not reached Serve.
		c.budget.reset(c.read.Sub(k.Arrived))
	}
	if i >= 0 {
		c.batch = slices.Delete(c.batch, i, i+1)
		c.remove(k)
	} else {
		k.abandoned = true
		c.forget(k)
	}
	if b := &c.budget; b.rapidResets > maxRapidResets && 2*b.rapidResets > b.requests {
		return &failure{http2.ErrCodeEnhanceYourCalm, guard.RapidReset, "too many requests are reset at once"}
	}
	return nil
}

// reset counts a request that the client has reset. after is the time until the server would have answered it, or the
// time in which the client has not sent all of it.
func (b *budget) reset(after time.Duration) {
	if after < rapid {
		b.rapidResets++
	}
}
