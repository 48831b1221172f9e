package testenv

import "os"

// SoakVariable is the environment variable that `make soak` sets: how long TestSoak goes on, as in 30m. If it is set,
// random walks take their long form.
const SoakVariable = "SOAK"

// Steps returns the length of a random walk, or of another test that repeats itself: short, or long if SOAK is set.
func Steps(short, long int) int {
	if os.Getenv(SoakVariable) != "" {
		return long
	}
	return short
}
