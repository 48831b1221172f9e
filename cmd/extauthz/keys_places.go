package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/keyfile"
	"github.com/extauthz/extauthz/pkg/authz/rediskeys"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// keyFile is a file of keys.
type keyFile struct{ path string }

func (f *keyFile) String() string { return f.path }
func (f *keyFile) Close() error   { return nil }

func (f *keyFile) all(context.Context) (rediskeys.Copy, error) {
	records, err := keyfile.Load(f.path)
	return rediskeys.Copy{Records: records}, err
}

func (f *keyFile) add(_ context.Context, records ...apikey.Record) error {
	return keyfile.Add(f.path, records...)
}

func (f *keyFile) change(_ context.Context, id string, change func(*apikey.Record) error) error {
	return keyfile.Change(f.path, id, change)
}

// redisKeys are the keys in Redis.
type redisKeys struct{ *rediskeys.Store }

func openRedisKeys(s *settings.Settings) (*redisKeys, error) {
	secret, err := service.ServerSecret(s.Keys)
	if err != nil {
		return nil, err
	}
	redisstore.Log(slog.New(slog.DiscardHandler)) // the command prints its error
	store, err := service.RedisForKeys(s, secret)
	return &redisKeys{store}, err
}

func (r *redisKeys) String() string { return "Redis" }

func (r *redisKeys) all(ctx context.Context) (rediskeys.Copy, error) {
	keys, err := r.Load(ctx)
	for _, refused := range keys.Refused {
		err = errors.Join(err, refused.Err)
	}
	if state := keys.State(); err != nil && state != "" {
		err = fmt.Errorf("%w\n  A program other than `extauthz keys` has written to Redis. "+
			"Check each owner, plan, scope, label, limit\n"+
			"  and state above. The list cannot show whether an unsigned key is the one that its owner has: rotate it\n"+
			"  afterwards if another key with the same id has ever leaked. "+
			"If all are right, this command signs the keys as they\n"+
			"  are, except weak keys that are not signed:\n"+
			"  extauthz keys sign --accept %s", err, state)
	}
	return keys, err
}

func (r *redisKeys) add(ctx context.Context, records ...apikey.Record) error {
	return service.HowToSign(r.Add(ctx, records...))
}

func (r *redisKeys) change(ctx context.Context, id string, change func(*apikey.Record) error) error {
	return service.HowToSign(r.Change(ctx, id, change))
}
