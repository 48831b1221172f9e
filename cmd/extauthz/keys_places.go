package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/rediskeys"
	"github.com/extauthz/extauthz/pkg/rulefile"
)

// keyFile is a file of keys. Each change reads it, edits its text and puts a new file in its place, while nobody else does.
type keyFile struct{ path string }

func (f *keyFile) String() string { return f.path }
func (f *keyFile) Close() error   { return nil }

func (f *keyFile) all(context.Context) (list []placedKey, state string, err error) {
	keys, problems := rulefile.LoadKeys(f.path)
	for _, record := range keys.Records {
		list = append(list, placedKey{Record: record})
	}
	return list, "", problems.Err()
}

func (f *keyFile) add(_ context.Context, record apikey.Record) error {
	return f.edit(func(file rulefile.File) ([]byte, error) { return rulefile.AddKey(file, record) })
}

func (f *keyFile) change(_ context.Context, id string, change func(*apikey.Record) error) error {
	if _, err := os.Stat(f.path); err != nil {
		return err
	}
	return f.edit(func(file rulefile.File) ([]byte, error) {
		keys, problems := rulefile.ParseKeys(file)
		if err := problems.Err(); err != nil {
			return nil, err
		}
		for _, record := range keys.Records {
			if record.ID == id {
				if err := change(&record); err != nil {
					return nil, err
				}
				return rulefile.ChangeKey(file, record)
			}
		}
		return nil, rulefile.ErrNoKey
	})
}

// newKeyFileMode is that of a file that is made here: it is for the service and for who makes keys.
const newKeyFileMode = 0o600

// edit puts a changed file in the place of the old one. It is seen whole or not at all.
func (f *keyFile) edit(change func(rulefile.File) ([]byte, error)) (err error) {
	path := f.path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // the link stays
	}
	unlock, err := lockDirectory(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	content, err := change(rulefile.File{Name: f.path, Content: old})
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".extauthz-keys-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, temp.Close(), os.Remove(temp.Name()))
		}
	}()
	if err := keepMode(path, temp); err != nil {
		return err
	}
	if _, err := temp.Write(content); err != nil {
		return err
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return err
	}
	return temp.Close()
}

// keepMode gives a new file the mode and the owner of the one whose place it takes, so that the service can still read it.
func keepMode(path string, temp *os.File) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return temp.Chmod(newKeyFileMode)
	}
	if err != nil {
		return err
	}
	if err := keepOwner(info, temp); err != nil {
		return fmt.Errorf("keep the owner of %s: %w (edit it as its owner, or as root)", path, err)
	}
	return temp.Chmod(info.Mode().Perm())
}

// redisKeys are the keys in Redis.
type redisKeys struct {
	client redis.UniversalClient
	store  *rediskeys.Store
}

func openRedisKeys(s *service.Settings) (*redisKeys, error) {
	secret, err := s.ServerSecret()
	if err != nil {
		return nil, &startError{err}
	}
	client, store, err := s.RedisForKeys(secret)
	if err != nil {
		return nil, &startError{err}
	}
	return &redisKeys{client, store}, nil
}

func (r *redisKeys) String() string { return "redis" }
func (r *redisKeys) Close() error   { return r.client.Close() }

func (r *redisKeys) all(ctx context.Context) (list []placedKey, state string, err error) {
	loaded, err := r.store.Load(ctx)
	for _, record := range loaded.Records {
		list = append(list, placedKey{Record: record})
	}
	for _, refused := range loaded.Refused {
		if refused.Record != nil {
			list = append(list, placedKey{Record: *refused.Record, unsigned: true})
		}
		err = errors.Join(err, refused.Err)
	}
	slices.SortFunc(list, func(a, b placedKey) int { return strings.Compare(a.ID, b.ID) })
	state = loaded.State()
	if err != nil && state != "" {
		err = fmt.Errorf("%w\n  Something other than `extauthz keys` has written to redis. The list cannot show whether a key that is not signed is the\n"+
			"  one that its owner has: rotate it afterwards if another key of the same id has ever leaked. If each owner, plan, scope, label,\n"+
			"  limit and state above is right, this signs them as they are, without the weak keys that are not signed:\n"+
			"  extauthz keys sign --accept %s", err, state)
	}
	return list, state, err
}

func (r *redisKeys) add(ctx context.Context, record apikey.Record) error {
	return service.HowToSign(r.store.Add(ctx, record))
}

func (r *redisKeys) change(ctx context.Context, id string, change func(*apikey.Record) error) error {
	return service.HowToSign(r.store.Change(ctx, id, change))
}
