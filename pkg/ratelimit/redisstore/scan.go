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
		found := n.target.Load().client.Scan(ctx, 0, pattern, page).Iterator()
		for found.Next(ctx) {
			key := found.Val()
			switch {
			case seen[key]:
			case len(seen) == most:
				return keys, false, nil
			default:
				seen[key], keys = true, append(keys, key)
			}
		}
		if err := found.Err(); err != nil {
			return keys, false, fmt.Errorf("search the keys of %s: %w", n.name, err)
		}
	}
	return keys, true, nil
}
