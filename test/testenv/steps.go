package testenv

import "os"

// SoakVariable is how long TestSoak goes on, as in 30m. `make soak` sets it: random walks then take their long form.
const SoakVariable = "SOAK"

// Steps returns the length of a random walk, or of another test that repeats itself: short, or long if SOAK is set.
func Steps(short, long int) int {
	if os.Getenv(SoakVariable) != "" {
		return long
	}
	return short
}
