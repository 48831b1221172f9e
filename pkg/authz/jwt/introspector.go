package jwt

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// mostCalls is how many calls run at once. Each can be caused by any client, with a token of its own choice.
const mostCalls = 64

// maxAnswer is the longest answer in bytes, and maxSecret the longest secret.
const maxAnswer, maxSecret = 64 << 10, 4 << 10

// Introspector asks issuers about tokens (RFC 7662). It is a credential.Slow. It caches answers by the hash of a token.
// Tokens that are not active have a cache of their own, so that they cannot displace the others. Use NewIntrospector. It
// is safe for concurrent use.
type Introspector struct {
	cfg              IntrospectorConfig
	client           *http.Client
	active, inactive *cache
	ctx              context.Context // of calls
	cancel           context.CancelFunc
	running          sync.WaitGroup

	mu    sync.Mutex
	calls map[cacheKey]*call
	stats map[string]*CallStats // by URL
}

// IntrospectorConfig are the settings of an Introspector. The zero value is ready to use.
type IntrospectorConfig struct {
	// Now, Transport and Timeout are as in Config.
	Now       func() time.Time
	Transport http.RoundTripper
	Timeout   time.Duration
	// OnFailure, if set, is called for each call without a usable answer. It must be safe for concurrent use.
	OnFailure func(url string, err error)
}

// CallStats are the figures of the calls to one URL: by answer, without a usable one, and not made because mostCalls ran.
type CallStats struct{ Active, Inactive, Failed, Refused uint64 }

// call is a call that runs, for one token.
type call struct {
	done chan struct{} // closed at the end; nil for an answer from the cache
	// answer is nil if the token is not active. err is why there is none.
	answer map[string]any
	err    error
}

// NewIntrospector returns an introspector that has asked nothing.
func NewIntrospector(cfg IntrospectorConfig) *Introspector {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.OnFailure == nil {
		cfg.OnFailure = func(string, error) {}
	}
	if cfg.Transport == nil {
		cfg.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConnsPerHost: mostCalls, IdleConnTimeout: time.Minute,
		}
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 5 * time.Second
	}
	i := &Introspector{
		cfg: cfg, client: newClient(Config{Transport: cfg.Transport, Timeout: cfg.Timeout}),
		active: newCache(cacheSize), inactive: newCache(cacheSize),
		calls: map[cacheKey]*call{}, stats: map[string]*CallStats{},
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

// Stats returns the figures of calls by URL.
func (i *Introspector) Stats() map[string]CallStats {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := make(map[string]CallStats, len(i.stats))
	for address, s := range i.stats {
		all[address] = *s
	}
	return all
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

// Identify returns the identity of a token: by the cached answer of its issuer, or by one that it waits for until ctx is
// nearly done. Only one call runs for a token. The error is a *credential.Error. ErrUnavailable means that the issuer
// has not answered, that too many calls run, or that ctx was done from the start.
func (i *Introspector) Identify(ctx context.Context, kind credential.Kind, token string) (credential.Identity, error) {
	c, _ := kind.(*Opaque)
	if c == nil || len(token) > maxToken {
		return credential.Identity{}, credential.Invalid("oversized")
	}
	one, cause := i.join(ctx, c, token)
	if one == nil {
		return credential.Identity{}, &credential.Error{Cause: cause, Kind: credential.ErrUnavailable}
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-ratelimit.DeadlineReserve))
		defer cancel()
	}
	if one.done != nil {
		select {
		case <-one.done:
		case <-ctx.Done():
			return credential.Identity{}, &credential.Error{Cause: "no_answer", Kind: credential.ErrUnavailable}
		}
	}
	switch {
	case one.err != nil:
		return credential.Identity{}, &credential.Error{Cause: "no_answer", Kind: credential.ErrUnavailable}
	case one.answer == nil:
		return credential.Identity{}, credential.Invalid("inactive")
	}
	return c.judge(one.answer, i.cfg.Now())
}

// key returns the key of a token's answer. It is the same after a reload of the rules.
func (c *Opaque) key(token string) cacheKey {
	text := fmt.Sprintf("%q %q %q", text(c.IntrospectionURL), text(c.ClientID), token)
	return cacheKey{token: sha256.Sum256([]byte(text))}
}

// cached returns the cached answer as a call that has ended, nil for none.
func (i *Introspector) cached(key cacheKey) *call {
	now := i.cfg.Now()
	answer, isActive := i.active.get(key, version{}, now)
	if _, isInactive := i.inactive.get(key, version{}, now); !isActive && !isInactive {
		return nil
	}
	return &call{answer: answer.Claims}
}

// join returns the cached answer, the call that runs for a token, or a new one; nil with the cause if none may begin.
func (i *Introspector) join(ctx context.Context, c *Opaque, token string) (one *call, cause string) {
	key := c.key(token)
	i.mu.Lock() // a call that ends adds its answer to the cache before
	defer i.mu.Unlock()
	if one = i.cached(key); one != nil {
		return one, ""
	}
	stats := i.stats[*c.IntrospectionURL]
	if stats == nil {
		stats = new(CallStats)
		i.stats[*c.IntrospectionURL] = stats
	}
	switch one = i.calls[key]; {
	case one != nil:
		return one, ""
	case ctx.Err() != nil || i.ctx.Err() != nil:
		return nil, "not_asked"
	case len(i.calls) >= mostCalls:
		stats.Refused++
		return nil, "too_many_calls"
	}
	one = &call{done: make(chan struct{})}
	i.calls[key] = one
	i.running.Go(func() {
		one.answer, one.err = i.ask(c, token)
		if one.err != nil && i.ctx.Err() == nil {
			i.cfg.OnFailure(*c.IntrospectionURL, one.err)
		}
		i.keep(c, key, one)
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.calls, key)
		close(one.done)
		switch {
		case one.err != nil:
			stats.Failed++
		case one.answer == nil:
			stats.Inactive++
		default:
			stats.Active++
		}
	})
	return one, ""
}

// keep caches the answer of a call.
func (i *Introspector) keep(c *Opaque, key cacheKey, one *call) {
	now, until := i.cfg.Now(), i.cfg.Now().Add(c.lifetime())
	switch {
	case one.err != nil:
	case one.answer == nil:
		i.inactive.put(key, cached{expires: now.Add(inactiveFor), weight: 1})
	default:
		if expires, _, ok := timesOf(one.answer); ok && !expires.IsZero() && expires.Before(until) {
			until = expires
		}
		weight := 1 + len(fmt.Sprint(one.answer))>>10
		i.active.put(key, cached{identity: credential.Identity{Claims: one.answer}, expires: until, weight: weight})
	}
}

// ask asks the issuer about a token. The answer is nil if the token is not active.
func (i *Introspector) ask(c *Opaque, token string) (answer map[string]any, err error) {
	secret, err := c.secret()
	if err != nil {
		return nil, err
	}
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
	byPost := text(c.ClientAuth) == "post"
	if byPost {
		form.Set("client_id", *c.ClientID)
		form.Set("client_secret", secret)
	}
	body := strings.NewReader(form.Encode())
	request, err := http.NewRequestWithContext(i.ctx, http.MethodPost, *c.IntrospectionURL, body)
	if err != nil {
		return nil, err
	}
	if !byPost { // RFC 6749, 2.3.1
		request.SetBasicAuth(url.QueryEscape(*c.ClientID), url.QueryEscape(secret))
	}
	for name, value := range map[string]string{
		"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json", "User-Agent": "extauthz",
	} {
		request.Header.Set(name, value)
	}
	response, err := i.client.Do(request)
	if e, ok := errors.AsType[*url.Error](err); ok {
		return nil, e.Err
	}
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the status is %d, want 200", response.StatusCode)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxAnswer {
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	answer, ok := parseClaims(content)
	active, isBool := answer["active"].(bool)
	switch {
	case !ok || !isBool:
		return nil, errors.New("the answer is not a JSON object with the boolean `active`")
	case !active:
		return nil, nil
	}
	return answer, nil
}

// secret reads the secret of this service at the issuer.
func (c *Opaque) secret() (string, error) {
	if c.ClientSecretEnv != nil {
		if secret := os.Getenv(*c.ClientSecretEnv); secret != "" {
			return secret, nil
		}
		return "", fmt.Errorf("the environment variable %s is not set", *c.ClientSecretEnv)
	}
	content, _, err := poll.Read(text(c.ClientSecretFile), maxSecret)
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(content), "\r\n")
	if secret == "" || len(secret) > maxSecret {
		return "", fmt.Errorf("%s: want a secret of 1 to %d bytes", text(c.ClientSecretFile), maxSecret)
	}
	return secret, nil
}
