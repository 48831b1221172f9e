package jwt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/pkg/authz/credential"
)

// mostCalls is how many calls run at once. Each can be caused by any client, with a token of its own choice.
const mostCalls = 64

// maxAnswer is the longest answer in bytes, and maxSecret the longest secret.
const maxAnswer, maxSecret = 64 << 10, 4 << 10

// Introspector asks issuers about tokens (RFC 7662). It is a credential.Slow. It caches answers by the hash of a token.
// Tokens that are not active have a cache of their own, so that they cannot displace the others. Use NewIntrospector.
// It is safe for concurrent use.
type Introspector struct {
	cfg              Config
	client           *http.Client
	active, inactive *cache
	ctx              context.Context // of calls
	cancel           context.CancelFunc
	running          sync.WaitGroup

	mu    sync.Mutex
	calls map[cacheKey]*call
	stats map[Answers]uint64
}

// Answers are the answers of one kind that a URL has given: active, inactive, failed (none that is usable), or refused
// (not asked, because mostCalls ran).
type Answers struct{ URL, Kind string }

// call is a call for one token.
type call struct {
	done   chan struct{}  // closed at the end; nil if it has ended
	answer map[string]any // nil if the token is not active
	cause  string         // why there is no answer, else ""
}

// NewIntrospector returns an introspector that has asked nothing.
func NewIntrospector(cfg Config) *Introspector {
	cfg = cfg.withDefaults()
	i := &Introspector{
		cfg: cfg, client: newClient(cfg, mostCalls), active: newCache(cacheSize), inactive: newCache(cacheSize),
		calls: map[cacheKey]*call{}, stats: map[Answers]uint64{},
	}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

// Close ends all calls. It may be called more than once.
func (i *Introspector) Close() {
	i.mu.Lock() // no call begins after it
	i.cancel()
	i.mu.Unlock()
	i.running.Wait()
}

// Stats returns the numbers of answers.
func (i *Introspector) Stats() map[Answers]uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.stats)
}

// Known returns the identity of an active token whose answer is cached.
func (i *Introspector) Known(kind credential.Kind, token string) (id credential.Identity, known bool) {
	c, _ := kind.(*Opaque)
	if c == nil || len(token) > maxToken {
		return id, false
	}
	now := i.cfg.Now()
	answer, ok := i.active.get(c.key(token), version{}, now)
	if !ok {
		return id, false
	}
	id, err := c.judge(answer.Claims, now)
	return id, err == nil
}

// Identify returns the identity of a token: by the cached answer of its issuer, or by one that it waits for until ctx
// is nearly done. Only one call runs for a token. The error is a *credential.Error. ErrUnavailable means that the
// issuer has not answered, that too many calls run, or that ctx was done from the start.
func (i *Introspector) Identify(ctx context.Context, kind credential.Kind, token string) (credential.Identity, error) {
	c, _ := kind.(*Opaque)
	if c == nil || len(token) > maxToken {
		return credential.Identity{}, credential.Invalid("oversized")
	}
	one := i.join(ctx, c, token)
	if one.done != nil && !ended(ctx, one.done) {
		one = &call{cause: "no_answer"} // the call goes on, for the next request
	}
	switch {
	case one.cause != "":
		return credential.Identity{}, &credential.Error{Cause: one.cause, Kind: credential.ErrUnavailable}
	case one.answer == nil:
		return credential.Identity{}, credential.Invalid("inactive")
	}
	return c.judge(one.answer, i.cfg.Now())
}

// key returns the key of a token's answer. It is the same after a reload of the rules.
func (c *Opaque) key(token string) cacheKey {
	text := fmt.Sprintf("%q %q %d %q", text(c.IntrospectionURL), text(c.ClientID), c.lifetime(), token)
	return cacheKey{token: sha256.Sum256([]byte(text))}
}

// join returns the call that runs for a token, or a new one. If the answer is cached, or none may begin, it has ended.
func (i *Introspector) join(ctx context.Context, c *Opaque, token string) *call {
	key, now := c.key(token), i.cfg.Now()
	i.mu.Lock() // a call that ends caches its answer before
	defer i.mu.Unlock()
	if answer, ok := i.active.get(key, version{}, now); ok {
		return &call{answer: answer.Claims}
	}
	if _, ok := i.inactive.get(key, version{}, now); ok {
		return new(call)
	}
	one := i.calls[key]
	switch {
	case one != nil:
		return one
	case ctx.Err() != nil || i.ctx.Err() != nil:
		return &call{cause: "not_asked"}
	case len(i.calls) >= mostCalls:
		i.stats[Answers{*c.IntrospectionURL, "refused"}]++
		return &call{cause: "too_many_calls"}
	}
	one = &call{done: make(chan struct{})}
	i.calls[key] = one
	i.running.Go(func() {
		kind := i.ask(c, key, token, one)
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.calls, key)
		close(one.done)
		i.stats[Answers{*c.IntrospectionURL, kind}]++
	})
	return one
}

// ask sets the answer of a call, and caches it. It returns the kind of Answers.
func (i *Introspector) ask(c *Opaque, key cacheKey, token string, one *call) (kind string) {
	answer, err := i.send(c, token)
	now := i.cfg.Now()
	switch {
	case err != nil:
		if one.cause = "no_answer"; i.ctx.Err() == nil {
			i.cfg.OnFailure(*c.IntrospectionURL, err)
		}
		return "failed"
	case answer == nil:
		i.inactive.put(key, cached{expires: now.Add(inactiveFor), weight: 1})
		return "inactive"
	}
	until := now.Add(c.lifetime())
	if expires, _, ok := timesOf(answer); ok && !expires.IsZero() && expires.Before(until) {
		until = expires
	}
	one.answer = answer
	weight := 1 + len(fmt.Sprint(answer))>>10
	i.active.put(key, cached{identity: credential.Identity{Claims: answer}, expires: until, weight: weight})
	return "active"
}

// Secret reads the secret of this service at the issuer.
func (c *Opaque) Secret() ([]byte, error) {
	secret, _, err := poll.Read(text(c.ClientSecretFile), maxSecret)
	secret = bytes.TrimRight(secret, "\r\n")
	if err == nil && (len(secret) == 0 || len(secret) > maxSecret) {
		err = fmt.Errorf("%s: want a secret of 1 to %d bytes", text(c.ClientSecretFile), maxSecret)
	}
	return secret, err
}

// send asks the issuer about a token. The answer is nil if the token is not active.
func (i *Introspector) send(c *Opaque, token string) (answer map[string]any, err error) {
	secret, err := c.Secret()
	if err != nil {
		return nil, err
	}
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
	byPost := text(c.ClientAuth) == "post"
	if byPost {
		form.Set("client_id", *c.ClientID)
		form.Set("client_secret", string(secret))
	}
	body := strings.NewReader(form.Encode())
	request, err := http.NewRequestWithContext(i.ctx, http.MethodPost, *c.IntrospectionURL, body)
	if err != nil {
		return nil, err
	}
	if !byPost { // RFC 6749, 2.3.1
		request.SetBasicAuth(url.QueryEscape(*c.ClientID), url.QueryEscape(string(secret)))
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	content, _, err := exchange(i.client, request, "application/json")
	if err != nil {
		return nil, err
	}
	if len(content) > maxAnswer {
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	answer, ok := parseClaims(content)
	switch active, isBool := answer["active"].(bool); {
	case !ok || !isBool:
		return nil, errors.New("the answer is not a JSON object with the boolean `active`")
	case !active:
		return nil, nil
	}
	return answer, nil
}
