package rediskeys_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/rediskeys"
	"github.com/extauthz/extauthz/test/testenv"
)

// BenchmarkLargeStore loads 100,000 keys, as a replica does after a change, and changes one, as `extauthz keys` does.
func BenchmarkLargeStore(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: testenv.Redis(b).Addr, ReadTimeout: time.Minute})
	defer client.Close()
	secret := newSecret(b)
	store := rediskeys.New(client, "rl:", secret)
	records := make([]apikey.Record, 100_000)
	for i := range records {
		id := fmt.Sprintf("%08d", i)
		records[i] = apikey.Record{
			ID: id, Hash: secret.Hash(id), Owner: fmt.Sprintf("customer-%d", i), Plan: "free",
			Labels: map[string]string{"team": fmt.Sprintf("team-%d", i)}, Scopes: []string{"read", "write"},
		}
	}
	if err := store.Add(b.Context(), records...); err != nil {
		b.Fatal(err)
	}
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			if c, err := store.Load(b.Context()); err != nil || len(c.Records) != len(records) {
				b.Fatal(len(c.Records), err)
			}
		}
	})
	b.Run("change", func(b *testing.B) {
		for b.Loop() {
			err := store.Change(b.Context(), records[0].ID, func(r *apikey.Record) error { r.Plan += "x"; return nil })
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
