package redisstore

import "github.com/redis/go-redis/v9"

// Connect returns a client of the Redis that cfg says, for other things that are kept there: it never repeats a command, and keeps
// to the deadline it is given. It connects when it is first used.
func Connect(cfg Config) (redis.UniversalClient, error) {
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	return redis.NewUniversalClient(options), nil
}
