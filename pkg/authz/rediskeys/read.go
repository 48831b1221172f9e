package rediskeys

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// What may be in Redis. Its users may write gigabytes there, and a replica that reads them runs out of memory. A record of a key
// has some 400 bytes.
const (
	maxID      = 256 // bytes
	maxValue   = 16 << 10
	maxRecords = 200_000
	maxTotal   = 64 << 20 // bytes of all ids and values
)

// batch is about how many keys one command reads: a command for all of them would keep Redis from deciding anything meanwhile.
const batch = 500

// The scripts compare sizes before anything is sent: a value cannot become larger between the check and the reply.
var (
	// sealScript returns the length of a field, and its value if it is not longer than allowed.
	sealScript = redis.NewScript(`
local field, max_value = ARGV[1], tonumber(ARGV[2])
local length = redis.call('HSTRLEN', KEYS[1], field)
if length == 0 or length > max_value then
	return {length, ''}
end
return {length, redis.call('HGET', KEYS[1], field)}`)

	// pageScript returns a page of HSCAN: the next cursor, and fields and values in turn. If something is too large, it returns
	// what, and where it has one, the field.
	pageScript = redis.NewScript(`
local cursor, count = ARGV[1], ARGV[2]
local max_records, max_id, max_value, max_page = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
if redis.call('HLEN', KEYS[1]) > max_records + 1 then
	return {'records'}
end
local page = redis.call('HSCAN', KEYS[1], cursor, 'COUNT', count)
local bytes = 0
for i = 1, #page[2], 2 do
	local id, value = page[2][i], page[2][i + 1]
	if #id > max_id then
		return {'id', string.sub(id, 1, max_id)}
	end
	if #value > max_value then
		return {'value', id}
	end
	bytes = bytes + #id + #value
end
if bytes > max_page then
	return {'total'}
end
return {'page', page[1], page[2]}`)
)

// seal reads the seal of all keys, "" for none.
func (s *Store) seal(ctx context.Context, client redis.Cmdable) (string, error) {
	reply, err := sealScript.Run(ctx, client, []string{s.key}, sealField, maxValue).Slice()
	if err != nil {
		return "", fmt.Errorf("read the seal of the API keys in redis: %w", err)
	}
	if len(reply) != 2 {
		return "", errReply
	}
	length, _ := reply[0].(int64)
	if length > maxValue {
		return "", tooLarge("value", sealField)
	}
	seal, ok := reply[1].(string)
	if !ok {
		return "", errReply
	}
	return seal, nil
}

// scan reads the records as they are stored, by id.
func (s *Store) scan(ctx context.Context, client redis.Cmdable) (map[string]string, error) {
	fields := map[string]string{}
	left := maxTotal
	for cursor, first := "0", true; first || cursor != "0"; first = false {
		reply, err := pageScript.Run(ctx, client, []string{s.key}, cursor, batch, maxRecords, maxID, maxValue, left).Slice()
		if err != nil {
			return nil, fmt.Errorf("read the API keys in redis: %w", err)
		}
		var pairs []any
		if cursor, pairs, err = page(reply); err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			id, _ := pairs[i].(string)
			value, _ := pairs[i+1].(string)
			left -= len(id) + len(value)
			if id != sealField {
				fields[id] = value
			}
		}
		if len(fields) > maxRecords { // of fields that came and went between the pages
			return nil, tooLarge("records", "")
		}
	}
	return fields, nil
}

// errReply says that a script returned what it cannot return.
var errReply = errors.New("read the API keys in redis: unexpected reply of a script")

// page reads the reply of pageScript.
func page(reply []any) (cursor string, pairs []any, err error) {
	text := func(i int) string {
		if i >= len(reply) {
			return ""
		}
		s, _ := reply[i].(string)
		return s
	}
	if what := text(0); what != "page" {
		return "", nil, tooLarge(what, text(1))
	}
	cursor = text(1)
	if _, err := strconv.ParseUint(cursor, 10, 64); err != nil || len(reply) != 3 {
		return "", nil, errReply
	}
	pairs, _ = reply[2].([]any)
	return cursor, pairs, nil
}

// tooLarge says what is too large, in the words of pageScript, and what an operator can do.
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
