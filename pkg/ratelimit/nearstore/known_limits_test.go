package nearstore

import (
	"math"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// TestLargeLimitsDoNotOverflow checks the largest limit with MaxReplicas: units whose outcome is unknown add up, and
// each counts once for each replica.
func TestLargeLimitsDoNotOverflow(t *testing.T) {
	const most = bucket.MaxWindowRequests
	now := int64(1_700_000_000_000_000)
	limit := bucket.Limit{Algorithm: bucket.FixedWindow, Requests: most, Window: 86_400_000_000}
	k := known{limit: limit, extra: extra{debt: &debt{replicas: MaxReplicas}}}
	for i := range 100 {
		k.uncertain(now, 2*most+1)
		k.rebase(now, 0)
		if used, owed := k.state.Used(&limit, now), k.owes(now); used != 2*most || owed != 0 {
			t.Fatalf("after %d requests: %d used, want %d; %d owed, want 0", i+1, used, int64(2*most), owed)
		}
	}
	if back := k.refund(math.MaxUint64, now); back != math.MaxInt64 {
		t.Errorf("a refund of %d", back)
	}
}
