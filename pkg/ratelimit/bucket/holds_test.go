package bucket

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// naiveHolds are holds in the order of their expiry, as Holds.
type naiveHolds []HoldCost

func (n *naiveHolds) add(c HoldCost) {
	at := len(*n)
	for at > 0 && (*n)[at-1].Expires > c.Expires {
		at--
	}
	*n = slices.Insert(*n, at, c)
}

func (n *naiveHolds) remove(id HoldID, expires int64) bool {
	at := slices.IndexFunc(*n, func(c HoldCost) bool { return c.ID == id && (expires == 0 || c.Expires == expires) })
	if at >= 0 {
		*n = slices.Delete(*n, at, at+1)
	}
	return at >= 0
}

func (n naiveHolds) units() (sum int64) {
	for _, c := range n {
		sum += int64(c.Cost)
	}
	return sum
}

// TestHoldsAreAList compares Holds with a plain list over random operations: short and long lists, few and many ids,
// clocks that step back, and many holds that end at once.
func TestHoldsAreAList(t *testing.T) {
	for range 150 {
		seed := uint64(time.Now().UnixNano())
		random := rand.New(rand.NewPCG(seed, 0))
		ids := 1 + random.IntN([]int{1, 3, 40, 5000}[random.IntN(4)])
		most := []int{2, shortList + 2, 60, 1500}[random.IntN(4)]
		held, want, now := &Holds{}, naiveHolds{}, int64(1000)
		for step := range 2000 {
			id := HoldID{byte(random.IntN(ids)), byte(random.IntN(ids) >> 8)}
			switch action := random.IntN(100); {
			case action < 45 && len(want) < most:
				older := random.IntN(100) / 98 * random.IntN(150)
				c := HoldCost{ID: id, Cost: uint64(1 + random.IntN(9)), Expires: now + 100 - int64(older)}
				held.Add(c)
				want.add(c)
			case action < 75:
				expires := int64(0)
				if len(want) > 0 {
					c := want[random.IntN(len(want))]
					id = c.ID
					if random.IntN(3) == 0 {
						expires = c.Expires + int64(random.IntN(10)/9)
					}
				}
				if got, removed := held.Remove(id, expires), want.remove(id, expires); got != removed {
					t.Fatalf("seed %d, step %d: remove(%v, %d) is %t, want %t", seed, step, id, expires, got, removed)
				}
			case action < 85:
				now += int64(random.IntN(3))
			case action < 86:
				now += int64(random.IntN(60))
			case action < 88:
				latest, changed := now+int64(random.IntN(110)), false
				for i := range want {
					if want[i].Expires > latest {
						want[i].Expires, changed = latest, true
					}
				}
				if got := held.cut(latest); got != changed {
					t.Fatalf("seed %d, step %d: cut(%d) is %t, want %t", seed, step, latest, got, changed)
				}
			case action < 96:
				for len(want) > 0 && want[0].Expires <= now {
					if c, ok := held.expired(now); !ok || c != want[0] {
						t.Fatalf("seed %d, step %d: expired(%d) is %v, %t, want %v", seed, step, now, c, ok, want[0])
					}
					want = want[1:]
				}
				if c, ok := held.expired(now); ok {
					t.Fatalf("seed %d, step %d: expired(%d) is %v, want none", seed, step, now, c)
				}
				held.tidy()
			case action < 98:
				held = held.Clone()
			}
			until := int64(0)
			if len(want) > 0 {
				until = want[len(want)-1].Expires
			}
			if held.Units() != want.units() || held.Number() != int64(len(want)) || held.Until() != until {
				t.Fatalf("seed %d, step %d: %d units of %d holds until %d, want %d, %d, %d", seed, step,
					held.Units(), held.Number(), held.Until(), want.units(), len(want), until)
			}
		}
		if diff := cmp.Diff([]HoldCost(want), held.Live()); diff != "" && len(want) > 0 {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}
