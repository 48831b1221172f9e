package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/keyfile"
	"github.com/extauthz/extauthz/pkg/authz/rediskeys"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/rules"
)

// keySource holds the API keys of a file, of Redis or of both, and follows their changes.
type keySource struct {
	// keys checks the API keys of requests. It is never nil.
	keys   *apikey.Keys
	secret *apikey.Secret

	log *slog.Logger
	// file has the keys of API_KEYS_FILE, shared those in Redis, and demo that of the sample. Keys of the file win.
	file, shared, demo apikey.Source
	path               string           // of the file, "" for none
	watcher            *keyfile.Watcher // nil without a file
	// store is nil without Redis, and all fields below it have their zero values.
	store      *rediskeys.Store
	generation rediskeys.Generation // of what was loaded from the store
	// maxAge is how long keys from Redis stay valid after confirmed, the last time that Redis returned them; 0: no limit.
	maxAge    time.Duration
	confirmed atomic.Pointer[time.Time]
	refused   atomic.Int64 // number of refused keys in Redis
}

// errNoSecret is the error of a missing server secret, and has the command that makes one.
var errNoSecret = errors.New("API keys need a server secret, which is not kept with them: " +
	"set API_KEY_SECRET or API_KEY_SECRET_FILE; to make one:\n" +
	"  export API_KEY_SECRET=$(extauthz keys secret)")

// ServerSecret returns the secret with which keys are hashed.
func ServerSecret(k settings.Keys) (*apikey.Secret, error) {
	if k.Secret == "" {
		return nil, errNoSecret
	}
	if _, err := apikey.NewSecret(k.Secret, ""); err != nil {
		return nil, fmt.Errorf("API_KEY_SECRET: %w; to make one: export API_KEY_SECRET=$(extauthz keys secret)", err)
	}
	secret, err := apikey.NewSecret(k.Secret, k.PreviousSecret)
	if err != nil {
		return nil, fmt.Errorf("API_KEY_SECRET_PREVIOUS: %w", err)
	}
	return secret, nil
}

// openKeys loads the keys that the settings name, or the key of the sample. Its error names what the operator has to
// fix. If Redis is unreachable, openKeys returns without its keys. They are loaded when Redis answers.
func openKeys(
	ctx context.Context, s *settings.Settings, rules *loadedRules, now func() time.Time, log *slog.Logger,
) (*keySource, error) {
	secret, err := secretFor(s, rules)
	if err != nil {
		return nil, err
	}
	k := &keySource{log: log, path: s.Keys.File, secret: secret}
	k.keys = apikey.New(apikey.Config{Secret: secret, Now: now, Sources: []*apikey.Source{&k.file, &k.shared, &k.demo}})
	if rules.sample {
		k.demo.Replace([]apikey.Record{{ // it is served on loopback only
			ID: "demo", Hash: secret.Hash("demo"), Weak: true, Owner: "demo", Plan: "free",
			Limit: &ratelimit.LimitSpec{Requests: 5, Unit: descriptors.Minute},
		}})
	}
	if s.Keys.File != "" {
		k.watcher = keyfile.NewWatcher(s.Keys.File, &k.file)
		if err := k.watcher.Load(); err != nil {
			return nil, fmt.Errorf("API_KEYS_FILE has mistakes:\n%w", err)
		}
	}
	if s.UsesRedis() && s.Keys.Configured() {
		if err := k.openRedis(ctx, s, secret); err != nil {
			return nil, err
		}
	}
	k.warn()
	return k, nil
}

// secretFor returns the server secret for some rules. Without configured keys it returns a random one.
func secretFor(s *settings.Settings, rules *loadedRules) (*apikey.Secret, error) {
	switch {
	case s.Keys.Configured():
		return ServerSecret(s.Keys)
	case rules.offline:
	case usesKeys(rules.first.Policies) && !rules.sample && s.UsesRedis():
		return nil, fmt.Errorf("the rules require API keys.\n%w", errNoSecret)
	case usesKeys(rules.first.Policies) && !rules.sample:
		return nil, fmt.Errorf("the rules require API keys: set API_KEYS_FILE, or set REDIS_URL to keep them in Redis.\n%w",
			errNoSecret)
	}
	return apikey.NewSecret(apikey.NewServerSecret(), "")
}

// checkPolicies logs an error if reloaded policies require API keys and none are configured, as at the start.
func (k *keySource) checkPolicies(policies map[string]*authz.Policy, s *settings.Settings, sample bool) {
	if usesKeys(policies) && !s.Keys.Configured() && !sample {
		k.log.Error("the reloaded rules require API keys, and none are configured, so every key is refused; " +
			"set API_KEYS_FILE or REDIS_URL, and API_KEY_SECRET, and restart")
	}
}

// usesKeys reports whether a policy accepts API keys.
func usesKeys(policies map[string]*authz.Policy) bool {
	for _, p := range policies {
		if slices.ContainsFunc(p.Credentials, func(c authz.Credential) bool { return c.APIKey != nil }) {
			return true
		}
	}
	return false
}

// Timeouts of keys in Redis: to connect, for a command, which may sign all keys, and for the load at the start.
const (
	keysDialTimeout = time.Second
	keysTimeout     = 5 * time.Second
	firstKeysLoad   = 3 * time.Second
)

// RedisForKeys returns the store of the keys in Redis. It reads the certificates by itself, and reports no changes.
func RedisForKeys(s *settings.Settings, secret *apikey.Secret) (*rediskeys.Store, error) {
	cfg, err := redisConfig(s, &s.Redis.Main, newCertificates(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	cfg.PoolSize, cfg.Timeout, cfg.DialTimeout = 1, keysTimeout, keysDialTimeout
	client, err := redisstore.Connect(cfg)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	return rediskeys.New(client, s.Limits.KeyPrefix+"rl:", secret), nil
}

func (k *keySource) openRedis(ctx context.Context, s *settings.Settings, secret *apikey.Secret) (err error) {
	if k.store, err = RedisForKeys(s, secret); err != nil {
		return err
	}
	k.maxAge = s.Keys.MaxAge
	k.shared.EndAt(time.Unix(1, 0)) // no key is valid until the first load
	ctx, cancel := context.WithTimeout(ctx, firstKeysLoad)
	defer cancel()
	begin := time.Now()
	loaded, err := k.store.Load(ctx)
	if err != nil {
		k.log.Error("cannot read the API keys in Redis; requests with these keys get 503 until Redis answers", "error",
			HowToSign(err))
		return nil
	}
	k.take(loaded)
	k.confirm(begin)
	return nil
}

// confirm records that Redis had the keys at a time. They are unusable after maxAge unless Redis confirms them again.
func (k *keySource) confirm(at time.Time) {
	k.confirmed.Store(&at)
	end := time.Time{} // never
	if k.maxAge > 0 {
		end = at.Add(k.maxAge)
	}
	k.shared.EndAt(end)
}

// follow follows the keys until ctx is done, and then closes the connections to Redis.
func (k *keySource) follow(ctx context.Context, group *errgroup.Group) {
	if k.watcher != nil {
		group.Go(func() error { k.watcher.Run(ctx, k.changed); return nil })
	}
	if k.store != nil {
		group.Go(func() error {
			k.store.Follow(ctx, k.generation, k.polled)
			return k.store.Close()
		})
	}
}

// ownLimits returns a function that returns the limit of the API key that a descriptor of a policy names; nil for none.
func ownLimits(live *rules.Live, keys *apikey.Keys) func(string, []descriptors.Entry) *ratelimit.LimitSpec {
	return func(domain string, entries []descriptors.Entry) *ratelimit.LimitSpec {
		owner, id := live.Policies().KeyOf(domain, entries)
		return keys.LimitOf(owner, id)
	}
}

// changed logs a change of the file.
func (k *keySource) changed(u keyfile.Update) {
	if u.Err != nil {
		k.log.Error("API keys refused; the previous keys stay active", "file", k.path, "generation", u.Generation, "problems",
			u.Err)
		return
	}
	k.log.Warn("API keys reloaded", "file", k.path, "generation", u.Generation, "keys", k.file.Len())
	k.warn()
}

// polled logs the result of a poll of the keys in Redis, and takes new keys.
func (k *keySource) polled(p rediskeys.Poll) {
	switch {
	case p.News && p.Err != nil:
		k.down(p.Err)
	case p.News:
		k.log.Warn("API keys in Redis can be used again")
	}
	if p.Keys != nil {
		k.take(*p.Keys)
		k.log.Info("API keys changed in Redis", "keys", len(p.Keys.Records))
		k.warn()
	}
	if p.Err == nil {
		k.confirm(p.Begin)
	}
}

// down logs that keys in Redis cannot be used, and how long the last copy stays active.
func (k *keySource) down(err error) {
	last := k.confirmed.Load()
	if last == nil {
		k.log.Error("API keys in Redis cannot be used; requests with these keys get 503", "error", HowToSign(err))
		return
	}
	until := "API_KEYS_MAX_AGE=0: no limit"
	if k.maxAge > 0 {
		until = last.Add(k.maxAge).UTC().Format(time.RFC3339)
	}
	k.log.Error("API keys in Redis cannot be used; the last copy stays active", "until", until, "error", HowToSign(err))
}

// take replaces the keys from Redis with a newer copy.
func (k *keySource) take(c rediskeys.Copy) {
	k.generation = c.Generation
	outdated := k.shared.Replace(c.Records)
	k.refused.Store(int64(len(c.Refused) + len(outdated)))
	if len(c.Refused) > 0 {
		k.log.Error("API keys in Redis are refused", "count", len(c.Refused), "first", c.Refused[0].Err)
	}
	if len(outdated) > 0 {
		k.log.Error("API keys in Redis are older than those of this replica, which stay active: an old state was restored",
			"count", len(outdated), "first", outdated[0])
	}
	if c.Outdated > 0 {
		k.log.Warn("API keys in Redis are signed with API_KEY_SECRET_PREVIOUS: run `extauthz keys sign` before you unset it",
			"count", c.Outdated)
	}
}

// warn logs what the operator should know about the active keys.
func (k *keySource) warn() {
	stats := k.keys.Stats()
	if stats.Foreign > 0 {
		k.log.Error("API keys were made with another API_KEY_SECRET and are refused: set that one as API_KEY_SECRET_PREVIOUS",
			"count", stats.Foreign)
	}
	if stats.Outdated > 0 {
		k.log.Warn("API keys were made with API_KEY_SECRET_PREVIOUS: rotate them before you unset it, "+
			"and wait until the grace of each has ended", "count", stats.Outdated)
	}
	if weak := stats.Weak - k.demo.Len(); weak > 0 {
		k.log.Warn("API keys are weak: they can be guessed and are for trials only; make others with `extauthz keys create`",
			"count", weak)
	}
	if twice, example := k.shared.Common(&k.file); twice > 0 {
		k.log.Warn("API keys are both in the file and in Redis; those of the file win", "count", twice, "example", example)
	}
}

// HowToSign adds the remedy to an error about keys that differ from what was signed.
func HowToSign(err error) error {
	if errors.Is(err, rediskeys.ErrCopied) {
		return fmt.Errorf("%w (remove the wrong record from the hash in Redis with HDEL, and list the keys again)", err)
	}
	if !errors.Is(err, rediskeys.ErrUnsigned) && !errors.Is(err, rediskeys.ErrState) {
		return err
	}
	return fmt.Errorf("%w (`extauthz keys list --redis` shows the keys, and how to sign them as they are)", err)
}
