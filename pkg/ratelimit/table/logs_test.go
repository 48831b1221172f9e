package table

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// TestLogsAreKeptExactly stores random logs of all lengths in a few entries by turns, and reads them back.
func TestLogsAreKeptExactly(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	limit := bucket.Limit{Algorithm: bucket.SlidingWindowLog, Requests: bucket.MaxLogRequests, Window: bucket.MaxWindow}
	var sh Shard[struct{}, string]
	var want [4]bucket.State
	sh.entries.reach(uint32(len(want)))
	for i := range want {
		sh.Set(uint32(i), &limit, &want[i], 1)
	}
	for range 2_000 {
		i := random.IntN(len(want))
		want[i] = randomLog(random)
		sh.Set(uint32(i), &limit, &want[i], 1)
		var room []bucket.Grant
		for k := range want {
			var got bucket.State
			sh.State(uint32(k), &got, &room)
			if diff := cmp.Diff(want[k], got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("seed %d: state (-kept +read):\n%s", seed, diff)
			}
			got.Grants = append(got.Grants, bucket.Grant{At: -1, Cost: -1}) // a charge: it must not show in another log
			for g := range got.Grants {
				if len(want[k].Grants) <= mostPacked {
					got.Grants[g] = bucket.Grant{}
				}
			}
		}
	}
	for i := range want {
		sh.Set(uint32(i), &limit, &bucket.State{}, 1)
	}
	if short, long := &sh.logs.short, &sh.logs.long; len(short.free) != int(short.used) ||
		len(long.free) != int(long.used) {
		t.Errorf("%d of %d short and %d of %d long logs are free, want all", len(short.free), short.used, len(long.free),
			long.used)
	}
}

// randomLog returns a log with up to 50 grants. Most of them are of one unit, and many logs are short.
func randomLog(random *rand.Rand) bucket.State {
	s := bucket.State{Last: random.Int64() - random.Int64()}
	at := s.Last - random.Int64N(bucket.MaxWindow)
	for range random.IntN(2 + 50*random.IntN(2)) {
		g := bucket.Grant{At: at, Cost: 1}
		if random.IntN(4) == 0 {
			g.Cost = 1 + random.Int64N(2*bucket.MaxLogRequests)
		}
		s.Grants = append(s.Grants, g)
		s.Count += g.Cost
		at += random.Int64N(1 << random.IntN(45))
	}
	return s
}

// TestTwentyPackedGrants measures the usual log of the largest limit that has one by default.
func TestTwentyPackedGrants(t *testing.T) {
	for _, c := range []struct{ gap, most int64 }{{3_000_000, 86}, {180_000_000, 106}} {
		var grants []bucket.Grant
		for i := range int64(20) {
			grants = append(grants, bucket.Grant{At: i * c.gap, Cost: 1})
		}
		packed := pack(nil, 20*c.gap, grants)
		if len(packed) > int(c.most) {
			t.Errorf("20 grants, one each %d s, have %d bytes, want at most %d", c.gap/1_000_000, len(packed), c.most)
		}
		if got := unpack(packed, 20*c.gap, new([]bucket.Grant)); !slices.Equal(got, grants) {
			t.Errorf("read %v, want %v", got, grants)
		}
	}
}
