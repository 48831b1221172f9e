package xds

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// Config configures a Client.
type Config struct {
	// Server is the address of the xDS server, host:port, or another target of gRPC.
	Server string
	Node   Node
	// Headers are sent with the call.
	Headers map[string]string
	// TLS returns the TLS configuration of the next connection. nil means plaintext.
	TLS func() *tls.Config
	// ConnectInterval is the time between attempts to connect, with a jitter of a half. Default: 3 s.
	ConnectInterval time.Duration
	// Backoff is the time until a stream is opened again that the server has ended. Default: 10 s to 60 s.
	Backoff Backoff
	// MaxMessage is the largest response in bytes. Default: 4 MiB.
	MaxMessage int
	// Overlay is the path of the overlay, "" for none. RequireEnd refuses one whose last key is not `end: true`.
	Overlay    string
	RequireEnd bool
	Check      ratelimit.CheckOptions
	// NoWait makes Load return before the server has sent rules.
	NoWait bool
	// Log receives what happens to the connection, and refused rules before there are any others. It must not be nil.
	Log *slog.Logger
}

// Client receives rules from an xDS server. It implements rules.Source. Use New.
type Client struct {
	cfg      Config
	received chan delivery
	open     atomic.Bool // the stream to the server is open
	// warned is the time at which an outage was logged last, the zero value if there is none.
	warned time.Time

	mu sync.Mutex
	// accepted is the last accepted response, an empty one before the first; version is its version on this stream.
	// refused is the last response if it was refused, else nil.
	accepted *response
	refused  *response
	version  string
	stream   *stream // on which version was accepted
	overlay  watchedOverlay
	active   rules.Set
	reported report // the last one
}

// report identifies a change that was reported.
type report struct {
	generation string
	refused    bool
}

// delivery is a message of the server, and the stream on which it came.
type delivery struct {
	message string
	stream  *stream
}

// New returns a client. Its error means that the server is no address.
func New(cfg Config) (*Client, error) {
	cfg.ConnectInterval = cmp.Or(cfg.ConnectInterval, defaultConnect)
	cfg.Backoff.Initial = cmp.Or(cfg.Backoff.Initial, defaultBackoff)
	cfg.Backoff.Max = cmp.Or(cfg.Backoff.Max, defaultMaxBackoff)
	cfg.MaxMessage = cmp.Or(cfg.MaxMessage, defaultMessage)
	conn, err := dial(&cfg) // it does not connect yet
	if err != nil {
		return nil, err
	}
	_ = conn.Close()      // nothing was sent
	var overlays []string // one at most
	if cfg.Overlay != "" {
		overlays = append(overlays, cfg.Overlay)
	}
	return &Client{
		cfg: cfg, received: make(chan delivery), accepted: &response{typeURL: typeURL},
		overlay: watchedOverlay{follower: poll.NewOf(overlayKind().MaxSize, overlays...)},
	}, nil
}

// refusalInterval is how often the log has a refusal before the first rules.
const refusalInterval = time.Second

// Connected reports whether the server can be reached now: the stream is open.
func (c *Client) Connected() bool { return c.open.Load() }

// Load reads the overlay, connects, and waits until the server has sent rules without mistakes. It refuses and logs
// others. With Config.NoWait, or if ctx is done, it returns a set without a generation instead. The connection ends
// with ctx. A mistake in the overlay is a problem, even before there are rules.
func (c *Client) Load(ctx context.Context) (rules.Set, rules.Problems) {
	if problems := c.overlay.load(&c.cfg); problems.HasErrors() {
		return rules.Set{Generation: generation(c.accepted, c.overlay.active)}, problems
	}
	go c.follow(ctx)
	if c.cfg.NoWait {
		return rules.Set{}, nil
	}
	c.cfg.Log.Warn("waiting for rules of the xDS server; nothing listens yet (FORCE_START_WITHOUT_INITIAL_CONFIG=true " +
		"starts without rules)")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var first rules.Update
	var logged time.Time
	c.Run(ctx, func(u rules.Update) {
		if u.Problems.HasErrors() {
			if time.Since(logged) >= refusalInterval {
				logged = time.Now()
				c.cfg.Log.Error("rules refused; there are no previous rules (logged once a second)",
					"generation", u.Set.Generation, "errors", len(u.Problems.Errors()), "problems", u.Problems.Errors())
			}
			return
		}
		first = u
		cancel()
	})
	return first.Set, first.Problems
}

// Run calls update once for each change of rules or overlay until ctx is done, one after the other. Call Load first.
func (c *Client) Run(ctx context.Context, update func(rules.Update)) {
	change := func(decide func() (u rules.Update, isNew bool, reply []byte)) {
		c.mu.Lock()
		u, isNew, reply := decide()
		if isNew {
			update(u)
		}
		stream := c.stream
		c.mu.Unlock()
		if reply != nil {
			stream.send(reply)
		}
	}
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case d := <-c.received:
				change(func() (rules.Update, bool, []byte) { return c.take(d) })
			}
		}
	})
	c.overlay.follower.Run(ctx, func(r poll.Reading, _ bool) {
		change(func() (rules.Update, bool, []byte) { return c.reread(r) })
	})
}

// Reload makes Run read the overlay at once, as on SIGHUP.
func (c *Client) Reload() { c.overlay.follower.Reload() }

// take decides on a message of the server. reply is the request that answers it. isNew is false without a change.
func (c *Client) take(d delivery) (u rules.Update, isNew bool, reply []byte) {
	if d.stream != c.stream {
		c.stream, c.version = d.stream, ""
	}
	r, err := readResponse(d.message)
	if err != nil {
		whole := &response{typeURL: "malformed", resources: []anyMessage{{value: d.message}}}
		u.Set.Generation = generation(whole, c.overlay.active)
		u.Problems = rules.Problems{problem("response", "", err.Error())}
		r.typeURL = whole.typeURL // no overlay makes it valid
	} else {
		u.Set, u.Problems = decode(r, c.overlay.active, &c.cfg)
	}
	if u.Problems.HasErrors() {
		c.refused = r
		return u, c.isNew(u), answer(r, c.version, detail(u.Problems))
	}
	return u, c.isNew(u), c.accept(r)
}

// accept makes a response the accepted one, and returns the request that answers it.
func (c *Client) accept(r *response) (reply []byte) {
	c.accepted, c.version, c.refused = r, r.version, nil
	return answer(r, r.version, "")
}

// isNew records a change, and reports whether it differs from the one before it.
func (c *Client) isNew(u rules.Update) bool {
	refused := u.Problems.HasErrors()
	isNew := c.reported != report{u.Set.Generation, refused}
	c.reported = report{u.Set.Generation, refused}
	if !refused {
		c.active = u.Set
	}
	return isNew
}

// reread decides on a reading of the overlay. A refused response may be valid with it: reply then accepts it.
func (c *Client) reread(r poll.Reading) (u rules.Update, isNew bool, reply []byte) {
	next, problems, changed := c.overlay.take(r)
	if !changed {
		return u, false, nil
	}
	u.Set.Generation, u.Problems = generation(c.accepted, next), problems
	if !problems.HasErrors() {
		u.Set, u.Problems = decode(c.accepted, next, &c.cfg)
	}
	if c.refused != nil && !problems.HasErrors() {
		if set, problems := decode(c.refused, next, &c.cfg); !problems.HasErrors() {
			u.Set, u.Problems = set, problems
			reply = c.accept(c.refused)
		}
	}
	if !u.Problems.HasErrors() {
		c.overlay.active = next
		if c.active.Generation == "" && reply == nil { // there are no rules yet to which it could be added
			return u, false, nil
		}
	}
	return u, c.isNew(u), reply
}
