package redisstore

import (
	"context"
	"fmt"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Keys returns up to most keys that match a pattern of Redis, in the Redis that has the buckets of a limit. complete is
// false if there may be more. Redis reads all of its keys for that, some at a time. The user needs +scan.
func (s *Store) Keys(ctx context.Context, l bucket.Limit, pattern string, most int) (
	keys []string, complete bool, err error,
) {
	seen := map[string]bool{} // a key can come twice
	for _, n := range s.space(&l).masters() {
		const page = 1000
		for cursor, begun := uint64(0), false; cursor != 0 || !begun; begun = true {
			if len(seen) >= most {
				return keys, false, nil
			}
			var found []string
			found, cursor, err = n.target.Load().client.Scan(ctx, cursor, pattern, page).Result()
			if err != nil {
				return keys, false, fmt.Errorf("search the keys of %s: %w", n.name, err)
			}
			for _, key := range found {
				if !seen[key] && len(seen) < most {
					seen[key], keys = true, append(keys, key)
				}
			}
		}
	}
	return keys, true, nil
}
