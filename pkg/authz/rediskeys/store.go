// Package rediskeys keeps API keys in Redis, where all replicas of the service share them. Each replica has a copy of all of
// them, which serves as long as Redis is away.
package rediskeys

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// The errors that a caller may want to know.
var (
	// ErrNoKey says that there is no key with the id.
	ErrNoKey = errors.New("no key with this id")
	// ErrExists says that there is one already.
	ErrExists = errors.New("there is a key with this id already")
	// ErrLost says that Redis had keys and has none any more, nor a generation: it has lost its data. Nobody revokes all keys
	// in that way, so the last copy serves.
	ErrLost = errors.New("redis has lost the API keys")
	// ErrBusy says that others changed keys all the time.
	ErrBusy = errors.New("the keys are being changed by others: try again")
)

// generationField is the field of the hash that is another one after each change. It is no id: those have no colon.
const generationField = ":generation"

// Store is the keys of one Redis: a hash with a field for each key, its id, and one for the generation. They are one Redis key,
// so that they share a slot of a cluster, are read and changed together, and are lost together. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	key    string
}

// New returns the keys at <prefix>keys. The client stays the caller's.
func New(client redis.UniversalClient, prefix string) *Store {
	return &Store{client: client, key: prefix + "keys"}
}

// Copy is all keys of one moment.
type Copy struct {
	// Generation tells it from others; "" when there have never been keys.
	Generation string
	// Records are sorted by id.
	Records []apikey.Record
	// Unreadable says which keys could not be read, and so are refused. It holds no key and no hash.
	Unreadable []error
}

// maxLoads is how often keys that change while they are read are read again before the next look at them.
const maxLoads = 5

// Load reads all keys as they are at one moment.
func (s *Store) Load(ctx context.Context) (Copy, error) {
	for range maxLoads {
		generation, err := s.generation(ctx)
		if err != nil {
			return Copy{}, err
		}
		loaded, err := s.scan(ctx)
		if err != nil {
			return Copy{}, fmt.Errorf("read the API keys in redis: %w", err)
		}
		again, err := s.generation(ctx)
		if err != nil {
			return Copy{}, err
		}
		if generation == again {
			loaded.Generation = generation
			return loaded, nil
		}
	}
	return Copy{}, ErrBusy
}

// batch is about how many keys one command reads: a command for all of them would keep Redis from deciding anything meanwhile.
const batch = 500

func (s *Store) scan(ctx context.Context) (c Copy, err error) {
	seen := map[string]bool{} // HSCAN may return a field twice
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var pairs []string
		if pairs, cursor, err = s.client.HScan(ctx, s.key, cursor, "", batch).Result(); err != nil {
			return Copy{}, err
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			id, data := pairs[i], pairs[i+1]
			if id == generationField || seen[id] {
				continue
			}
			seen[id] = true
			record, err := apikey.Decode(id, []byte(data))
			if err != nil {
				c.Unreadable = append(c.Unreadable, err)
				continue
			}
			c.Records = append(c.Records, record)
		}
	}
	slices.SortFunc(c.Records, func(a, b apikey.Record) int { return strings.Compare(a.ID, b.ID) })
	return c, nil
}

// generation is that of the keys now, "" when there are none and never were.
func (s *Store) generation(ctx context.Context) (string, error) {
	generation, err := s.client.HGet(ctx, s.key, generationField).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("read the generation of the API keys in redis: %w", err)
	}
	return generation, nil
}

// Add adds a key. The error is ErrExists when its id is taken.
func (s *Store) Add(ctx context.Context, record apikey.Record) error {
	return s.write(ctx, record.ID, func(_ apikey.Record, there bool) (apikey.Record, error) {
		if there {
			return record, ErrExists
		}
		return record, nil
	})
}

// Change replaces a key by what change makes of it, which may be called again when somebody else was faster. The error is ErrNoKey
// when there is none with this id.
func (s *Store) Change(ctx context.Context, id string, change func(*apikey.Record) error) error {
	return s.write(ctx, id, func(record apikey.Record, there bool) (apikey.Record, error) {
		if !there {
			return record, ErrNoKey
		}
		return record, change(&record)
	})
}

// maxWrites is how often a change is tried when others change keys at the same moment.
const maxWrites = 20

// write puts what next makes of a record in its place and changes the generation, both or none.
func (s *Store) write(ctx context.Context, id string, next func(record apikey.Record, there bool) (apikey.Record, error)) error {
	attempt := func(tx *redis.Tx) error {
		old, there, err := s.read(ctx, tx, id)
		if err != nil {
			return err
		}
		record, err := next(old, there)
		if err != nil {
			return err
		}
		if err := record.Check(); err != nil {
			return fmt.Errorf("key %q: %w", id, err)
		}
		data, err := record.Encode()
		if err != nil {
			return fmt.Errorf("key %q: %w", id, err)
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			return p.HSet(ctx, s.key, id, data, generationField, rand.Text()).Err()
		})
		return err
	}
	for range maxWrites {
		err := s.client.Watch(ctx, attempt, s.key)
		if !errors.Is(err, redis.TxFailedErr) {
			return err
		}
	}
	return ErrBusy
}

func (s *Store) read(ctx context.Context, tx *redis.Tx, id string) (record apikey.Record, there bool, err error) {
	data, err := tx.HGet(ctx, s.key, id).Bytes()
	if errors.Is(err, redis.Nil) {
		return record, false, nil
	}
	if err != nil {
		return record, false, fmt.Errorf("read key %q in redis: %w", id, err)
	}
	record, err = apikey.Decode(id, data)
	return record, true, err
}
