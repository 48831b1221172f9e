package apikey_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// TestTimingTellsNothing compares how long a key with a known id and a wrong secret takes, and one with an id that nobody has.
// The median of many turns leaves out what else the machine does; a comparison that stopped early, or an HMAC that was left
// out, would differ by half and more.
func TestTimingTellsNothing(t *testing.T) {
	secret := newSecret(t, pepper, "")
	set, _ := records(t, secret, 1000)
	keys := checker(secret, set...)
	wrong, err := apikey.NewKey(set[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	unknown, _ := newKey(t)
	const turns, calls = 200, 50
	measure := func(key string) float64 {
		begin := time.Now()
		for range calls {
			if _, err := keys.Check(key); err == nil {
				t.Fatal("a wrong key passes")
			}
		}
		return float64(time.Since(begin)) / calls
	}
	var a, b []float64
	for range turns {
		a, b = append(a, measure(wrong)), append(b, measure(unknown))
	}
	slices.Sort(a)
	slices.Sort(b)
	medianA, medianB := a[turns/2], b[turns/2]
	if ratio := medianA / medianB; math.Abs(math.Log(ratio)) > math.Log(1.25) {
		t.Errorf("a wrong secret takes %.0f ns, an unknown id %.0f ns", medianA, medianB)
	}
}
