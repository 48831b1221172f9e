package loadgen

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Keys are the keys that requests have.
type Keys struct {
	Distribution Distribution
	// Number is how many keys there are.
	Number int
}

// Distribution is how often each key occurs, by its name.
type Distribution string

// The distributions of keys.
const (
	Uniform Distribution = "uniform"
	// Zipf draws key k with a probability that falls as k^-1.1: few keys are hot, most are rare.
	Zipf Distribution = "zipf"
	// Sequence sends each key once, and then again from the first one, on each connection.
	Sequence Distribution = "sequence"
)

// MostKeys is how many keys keyDigits can tell apart.
const MostKeys = 100_000_000

const keyDigits = 8

// zipfExponent is that of the load of a typical cache.
const zipfExponent = 1.1

// ParseKeys reads `uniform:N`, `zipf:N` or `one`.
func ParseKeys(text string) (Keys, error) {
	if text == "one" {
		return Keys{Uniform, 1}, nil
	}
	name, number, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(number)
	k := Keys{Distribution(name), n}
	if (k.Distribution != Uniform && k.Distribution != Zipf) || err != nil || n < 1 || n > MostKeys {
		return Keys{}, fmt.Errorf("want uniform:N, zipf:N or one, with N from 1 to %d", MostKeys)
	}
	return k, nil
}

// String returns the text that ParseKeys reads.
func (k Keys) String() string {
	if k.Number == 1 {
		return "one"
	}
	return string(k.Distribution) + ":" + strconv.Itoa(k.Number)
}

// draw returns a function that draws keys, for one goroutine.
func (k Keys) draw(seed uint64) func() uint64 {
	if k.Distribution == Sequence {
		next := uint64(0)
		return func() uint64 {
			key := next % uint64(k.Number)
			next++
			return key
		}
	}
	random := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	if k.Distribution == Zipf {
		return rand.NewZipf(random, zipfExponent, 1, uint64(k.Number-1)).Uint64
	}
	n := uint64(k.Number)
	return func() uint64 { return random.Uint64N(n) }
}

// putKey writes a key as decimal digits.
func putKey(digits []byte, key uint64) {
	for i := keyDigits - 1; i >= 0; i-- {
		digits[i] = byte('0' + key%10)
		key /= 10
	}
}
