package rediskeys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// The errors of a Store.
var (
	// ErrLost means that Redis had keys and has none now. The last copy stays active.
	ErrLost = errors.New("redis has lost the API keys")
	// ErrUnsigned means that the keys are not the ones that were signed together.
	ErrUnsigned = errors.New("the API keys in redis are not as `extauthz keys` left them")
	// ErrOld means that the keys are signed together, but older than the last copy.
	ErrOld = errors.New("the API keys in redis are older than those in use: " +
		"redis lost a change, or an older state was put back")
	// ErrTooLarge means that there is more data than API keys need. It was not read.
	ErrTooLarge = errors.New("the API keys in redis are too large")
	// ErrState means that the keys are not in the state that Sign is to accept.
	ErrState = errors.New("the keys have changed")
	// ErrCopied means that an unsigned record has the hash of another record.
	ErrCopied = errors.New("a hash has been copied")
	// ErrBusy means that the keys changed during each attempt.
	ErrBusy = errors.New("other processes are changing the keys: try again")
)

// sealField is the field of the hash with the seal of all keys. It is not an id, because ids have no colon.
const sealField = ":generation"

// Store holds the keys of one Redis: a hash with one field for each key, named by its id, and one for the seal of all.
// So they share a slot of a cluster, and are changed and lost together. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	key    string
	secret *apikey.Secret
}

// New returns the keys at <prefix>keys, signed with the secret.
func New(client redis.UniversalClient, prefix string, secret *apikey.Secret) *Store {
	return &Store{client: client, key: prefix + "keys", secret: secret}
}

// Close closes the client.
func (s *Store) Close() error { return s.client.Close() }

// maxLoads is how often Load reads the keys again if they change during the reading.
const maxLoads = 5

// Load reads all keys of one moment. With ErrUnsigned, the copy shows the content of Redis and must not check keys.
func (s *Store) Load(ctx context.Context) (Copy, error) {
	for range maxLoads {
		seal, fields, err := s.read(ctx, s.client)
		if errors.Is(err, errChanging) {
			continue
		}
		if err != nil {
			return Copy{}, err
		}
		return s.open(seal, fields)
	}
	return Copy{}, ErrBusy
}

// errChanging: the keys changed while they were read.
var errChanging = errors.New("the keys are changing")

// Add adds keys, all or none. The error is ErrUnsigned if the seal does not match.
func (s *Store) Add(ctx context.Context, records ...apikey.Record) error {
	return s.update(ctx, func(c Copy, opened error, u *update) error {
		if opened != nil {
			return opened
		}
		for _, record := range records {
			_, exists, err := c.record(record.ID)
			switch {
			case err != nil:
				return err
			case exists:
				return fmt.Errorf("there is a key with this id already: %q", record.ID)
			}
			if err := u.put(record); err != nil {
				return err
			}
		}
		return nil
	})
}

// Change applies change to a key. It calls change again after a conflict with another change. The error is ErrUnsigned
// if the seal does not match.
func (s *Store) Change(ctx context.Context, id string, change func(*apikey.Record) error) error {
	return s.update(ctx, func(c Copy, opened error, u *update) error {
		if opened != nil {
			return opened
		}
		record, exists, err := c.record(id)
		switch {
		case err != nil:
			return err
		case !exists:
			return errors.New("no key with this id")
		}
		if err := change(&record); err != nil {
			return err
		}
		return u.put(record)
	})
}

// Sign seals all keys with the current server secret, and returns how many it signed. With accept "", it refuses
// unless the seal matches, so that only the server secret differs. Otherwise accept is the State of the copy that an
// operator has inspected. Then Sign signs all its records as new versions. It removes unsigned records that are weak
// or unreadable, and returns their ids. The hash of a weak key does not depend on its id, so it could be that of any
// text. The error is ErrCopied if an unsigned record has a hash of another record.
func (s *Store) Sign(ctx context.Context, accept string) (signed int, removed []string, err error) {
	err = s.update(ctx, func(c Copy, opened error, u *update) error {
		signed, removed = len(c.Records), nil
		switch {
		case accept == "" && opened != nil:
			return opened
		case accept == "" && len(c.Refused) > 0:
			return fmt.Errorf("%w: %w", ErrUnsigned, c.Refused[0].Err)
		case accept == "":
			for id, data := range u.signed { // records and versions stay the same
				u.seal(id, []byte(data))
			}
			return nil
		case accept != c.State():
			return fmt.Errorf("%w: their state is %s now, not %s", ErrState, c.State(), accept)
		}
		if err := c.checkHashes(); err != nil {
			return err
		}
		for _, record := range c.Records {
			if err := u.put(record); err != nil {
				return err
			}
		}
		for _, refused := range c.Refused {
			if refused.Record == nil || refused.Record.Weak || u.put(*refused.Record) != nil {
				u.remove(refused.ID)
				removed = append(removed, refused.ID)
				continue
			}
			signed++
		}
		return nil
	})
	return signed, removed, err
}

// maxWrites is how often a change is tried while other processes change keys.
const maxWrites = 20

// update writes what change does to u, and a new seal, in one transaction. opened is the error of opening c.
func (s *Store) update(ctx context.Context, change func(c Copy, opened error, u *update) error) error {
	attempt := func(tx *redis.Tx) error {
		seal, fields, err := s.read(ctx, tx)
		if err != nil {
			return err
		}
		c, opened := s.open(seal, fields)
		if c.signed == nil {
			c.signed, c.fields = map[string]string{}, map[string]string{}
		}
		latest := c.Generation.version // 0 without a seal that can be read
		for _, r := range c.Records {
			latest = max(latest, r.Version)
		}
		u := &update{store: s, version: max(latest+1, time.Now().UnixMicro()), signed: c.signed, fields: c.fields}
		if err := change(c, opened, u); err != nil {
			return err
		}
		if err := u.check(); err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { u.send(ctx, p); return nil })
		return err
	}
	for range maxWrites {
		err := s.client.Watch(ctx, attempt, s.key)
		if !errors.Is(err, redis.TxFailedErr) && !errors.Is(err, errChanging) {
			return err
		}
	}
	return ErrBusy
}
