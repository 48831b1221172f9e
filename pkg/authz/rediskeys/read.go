package rediskeys

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// The bounds of what is read, because the users of Redis may write gigabytes. A record of a key has some 400 bytes.
const (
	maxID      = 256 // bytes
	maxValue   = 16 << 10
	maxRecords = 200_000
	maxTotal   = 64 << 20 // bytes of all ids and values
)

// batch is about how many keys one command reads. A command for all keys would block the decisions in Redis.
const batch = 500

//go:embed page.lua
var pageText string

// pageScript returns the seal of all keys, and a page of HSCAN: the next cursor, and fields and values in turn; without
// a cursor only the seal. It returns what is too large, and its field, instead of having Redis send it.
var pageScript = redis.NewScript(pageText)

// read reads the seal, "" for none, and the stored records by id. The error is errChanging if they may not match.
func (s *Store) read(ctx context.Context, client redis.Cmdable) (seal string, fields map[string]string, err error) {
	fields = map[string]string{}
	left := maxTotal
	for cursor, first := "0", true; first || cursor != "0"; first = false {
		var now string
		var pairs []any
		now, cursor, pairs, err = s.page(ctx, client, cursor, left)
		switch {
		case err != nil:
			return "", nil, err
		case first:
			seal = now
		case now != seal:
			return "", nil, errChanging
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			id, _ := pairs[i].(string)
			value, _ := pairs[i+1].(string)
			left -= len(id) + len(value)
			if id != sealField {
				fields[id] = value
			}
		}
		if len(fields) > maxRecords { // possible if fields come and go between the pages
			return "", nil, tooLarge("records", "")
		}
	}
	return seal, fields, nil
}

// page runs pageScript. left is the largest size of the page in bytes.
func (s *Store) page(
	ctx context.Context, client redis.Cmdable, cursor string, left int,
) (seal, next string, pairs []any, err error) {
	reply, err := pageScript.Run(
		ctx, client, []string{s.key}, sealField, cursor, batch, maxRecords, maxID, maxValue, left).Slice()
	if err != nil {
		return "", "", nil, fmt.Errorf("read the API keys in redis: %w", err)
	}
	var texts [3]string
	for i := range min(len(reply), len(texts)) {
		texts[i], _ = reply[i].(string)
	}
	if texts[0] != "page" {
		return "", "", nil, tooLarge(texts[0], texts[1])
	}
	if len(reply) != 4 || texts[2] == "" {
		return "", "", nil, errReply
	}
	pairs, _ = reply[3].([]any)
	return texts[1], texts[2], pairs, nil
}

// errReply is the error of a reply that pageScript never sends.
var errReply = errors.New("read the API keys in redis: unexpected reply of a script")

// tooLarge returns an error with the remedy. what is a word of pageScript.
func tooLarge(what, field string) error {
	const remedy = "`extauthz keys` writes no such thing: remove it with HDEL, or restore a backup"
	switch what {
	case "records":
		return fmt.Errorf("%w: more than %d records", ErrTooLarge, maxRecords)
	case "total":
		return fmt.Errorf("%w: more than %d MiB in total", ErrTooLarge, maxTotal>>20)
	case "id":
		return fmt.Errorf("%w: the field %.32q... has a name of more than %d bytes; %s", ErrTooLarge, field, maxID, remedy)
	case "value":
		return fmt.Errorf("%w: the field %.64q has more than %d bytes; %s", ErrTooLarge, field, maxValue, remedy)
	}
	return errReply
}
