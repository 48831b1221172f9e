package rediskeys

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// How keys are stored. The value of a field is `hmac-sha256:<name of the secret>:<MAC> <JSON of the record>`. The MAC
// also covers the Redis key and the id. The seal is `hmac-sha256:<name of the secret>:<MAC> <version> <digest>`. The
// version grows with each change. The digest is a hash of the JSON of all records. So a user of Redis cannot change,
// move, remove or restore a single record; that user can only restore all of them to one earlier state.

// Copy holds all keys of one moment.
type Copy struct {
	// Generation distinguishes this state from others, and older states from newer ones.
	Generation Generation
	// Records are sorted by id.
	Records []apikey.Record
	// Refused are the records without a valid signature and the unreadable ones, sorted by id.
	Refused []Refused
	// Outdated is how many records are signed with the previous server secret.
	Outdated int

	seal   string
	fields map[string]string // the stored values of all records, by id
	signed map[string]string // the JSON of the signed records, by id
}

// stateLength is long enough that it takes 2^64 attempts to find another state with the same name.
const stateLength = 32

// State returns a name for all that Redis holds of the keys, signed or not; "" for nothing.
func (c *Copy) State() string {
	if c.seal == "" && len(c.fields) == 0 {
		return ""
	}
	all := maps.Clone(c.fields)
	all[sealField] = c.seal
	return digestOf(all)[:stateLength]
}

// Generation names a state of all keys. Its zero value is the state before the first key.
type Generation struct {
	seal    string
	version int64
}

// Refused is a record that must not be used.
type Refused struct {
	ID string
	// Record is its content, only to be shown to operators; nil if it cannot be read.
	Record *apikey.Record
	// Err is why the record was refused. It holds no key and no hash.
	Err error
}

// record returns the record with an id. The error is that of a refused one.
func (c *Copy) record(id string) (record apikey.Record, exists bool, err error) {
	byID := func(r apikey.Record, id string) int { return strings.Compare(r.ID, id) }
	if i, exists := slices.BinarySearchFunc(c.Records, id, byID); exists {
		return c.Records[i], true, nil
	}
	for _, refused := range c.Refused {
		if refused.ID == id {
			return apikey.Record{}, false, refused.Err
		}
	}
	return apikey.Record{}, false, nil
}

// checkHashes returns ErrCopied if an unsigned record has a hash of another record.
func (c *Copy) checkHashes() error {
	of := map[apikey.Hash]string{} // ids
	for _, record := range c.Records {
		for _, hash := range hashes(record) {
			of[hash] = record.ID
		}
	}
	for _, refused := range c.Refused {
		if refused.Record == nil {
			continue
		}
		for _, hash := range hashes(*refused.Record) {
			if other, taken := of[hash]; taken && other != refused.ID {
				return fmt.Errorf("%w: the keys %q and %q have the same hash, and %q is not signed", ErrCopied,
					min(other, refused.ID), max(other, refused.ID), refused.ID)
			}
			of[hash] = refused.ID
		}
	}
	return nil
}

// hashes returns the hashes of the current and the previous key of a record.
func hashes(r apikey.Record) []apikey.Hash {
	if r.Previous == nil {
		return []apikey.Hash{r.Hash}
	}
	return []apikey.Hash{r.Hash, r.Previous.Hash}
}

const (
	ofRecord = "record"
	ofAll    = "all records"
)

// open verifies the content of Redis. With ErrUnsigned, the copy shows it and must not be used to check keys.
func (s *Store) open(seal string, fields map[string]string) (Copy, error) {
	if seal == "" && len(fields) == 0 {
		return Copy{}, nil
	}
	c := Copy{seal: seal, fields: fields, signed: make(map[string]string, len(fields))}
	unsigned := 0
	for _, id := range slices.Sorted(maps.Keys(fields)) {
		data, current, err := s.secret.Open([]byte(fields[id]), ofRecord, s.key, id)
		if err != nil {
			unsigned++
			c.Refused = append(c.Refused, refuse(id, fields[id], err))
			continue
		}
		c.signed[id] = string(data)
		if !current {
			c.Outdated++
		}
		record, err := apikey.Decode(id, data)
		if err != nil {
			c.Refused = append(c.Refused, Refused{ID: id, Err: fmt.Errorf("key %.64q: %w", id, err)})
			continue
		}
		c.Records = append(c.Records, record)
	}
	data, _, err := s.secret.Open([]byte(seal), ofAll, s.key)
	version, digest, _ := strings.Cut(string(data), " ")
	number, notNumber := strconv.ParseInt(version, 10, 64)
	switch {
	case err == nil && notNumber == nil && digest == digestOf(c.signed):
		c.Generation = Generation{seal, number}
		return c, nil
	case unsigned > 0:
		return c, fmt.Errorf("%w: %d of %d records are refused, the first is %w",
			ErrUnsigned, unsigned, len(fields), c.Refused[0].Err)
	}
	return c, fmt.Errorf("%w: each record is signed, "+
		"but some were removed or put back, or the seal of all was changed", ErrUnsigned)
}

// refuse describes a record without a valid seal. A version that did not sign stored only the JSON.
func refuse(id, value string, err error) Refused {
	refused := Refused{ID: id, Err: fmt.Errorf("key %.64q: %w", id, err)}
	if !strings.HasPrefix(value, "{") {
		_, value, _ = strings.Cut(value, " ")
	}
	if record, err := apikey.Decode(id, []byte(value)); err == nil {
		refused.Record = &record
	}
	return refused
}

// digestOf returns a hash of texts and their names. The length precedes each, so that other texts give another message.
func digestOf(texts map[string]string) string {
	h := sha256.New()
	var message []byte
	add := func(text string) {
		message = binary.BigEndian.AppendUint64(message[:0], uint64(len(text)))
		_, _ = h.Write(append(message, text...)) // a hash never fails
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		add(name)
		add(texts[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// update collects a change of the keys in a copy.
type update struct {
	store   *Store
	version int64
	signed  map[string]string // the JSON of all records after the change
	fields  map[string]string // the stored values of all records after the change
	set     []any             // fields and values in turn
	deleted []string
}

// put signs a record as a new version.
func (u *update) put(record apikey.Record) error {
	record.Version = u.version
	data, err := record.Encode()
	if err != nil {
		return err
	}
	u.seal(record.ID, data)
	return nil
}

func (u *update) seal(id string, data []byte) {
	value := string(u.store.secret.Seal(data, ofRecord, u.store.key, id))
	u.signed[id], u.fields[id] = string(data), value
	u.set = append(u.set, id, value)
}

func (u *update) remove(id string) {
	delete(u.signed, id)
	delete(u.fields, id)
	u.deleted = append(u.deleted, id)
}

// check returns an error if Load could not read the keys after the change, because they would be too large.
func (u *update) check() error {
	total := 0
	for id, value := range u.fields {
		if len(value) > maxValue {
			return fmt.Errorf("key %q: the record has %d bytes, want at most %d: "+
				"give it fewer or shorter labels and scopes", id, len(value), maxValue)
		}
		total += len(id) + len(value)
	}
	switch reserved := maxID + maxValue; { // for the seal
	case len(u.fields) > maxRecords:
		return tooLarge("records", "")
	case total > maxTotal-reserved:
		return tooLarge("total", "")
	}
	return nil
}

// send queues the commands.
func (u *update) send(ctx context.Context, p redis.Pipeliner) {
	all := fmt.Appendf(nil, "%d %s", u.version, digestOf(u.signed))
	u.set = append(u.set, sealField, string(u.store.secret.Seal(all, ofAll, u.store.key)))
	for pairs := range slices.Chunk(u.set, 2*batch) {
		p.HSet(ctx, u.store.key, pairs...)
	}
	if len(u.deleted) > 0 {
		p.HDel(ctx, u.store.key, u.deleted...)
	}
}
