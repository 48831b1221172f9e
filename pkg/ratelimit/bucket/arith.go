package bucket

import "math/bits"

// uint128 is the exact product of two counts or times of at most 63 bits.
type uint128 struct{ hi, lo uint64 }

func product(a, b int64) uint128 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return uint128{hi, lo}
}

func less(a, b uint128) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// mulDiv returns quotient and remainder of a·b/d. It requires a, b ≥ 0, d > 0, and a quotient of at most 63 bits.
func mulDiv(a, b, d int64) (q, r int64) {
	p := product(a, b)
	uq, ur := bits.Div64(p.hi, p.lo, uint64(d))
	return int64(uq), int64(ur)
}

func mulDivCeil(a, b, d int64) int64 {
	q, r := mulDiv(a, b, d)
	if r > 0 {
		return q + 1
	}
	return q
}
