package bucket

import (
	"fmt"
	"math"
	"strings"
)

// ParseState reads the text that the script stores for a bucket of this algorithm; "" is an unused bucket. A text that
// the script cut for an answer makes a State that describes the bucket, but cannot be decided on.
func ParseState(a Algorithm, text string) (State, error) {
	s, _, err := parse(a, text)
	return s, err
}

// parse is ParseState. cut is Seen.Cut.
func parse(a Algorithm, text string) (s State, cut bool, err error) {
	if text == "" {
		return State{}, false, nil
	}
	_, rest, ok := strings.Cut(text, " ") // only the Lua checks the tag, because other programs can write to Redis
	last, rest, number := cutNumber(rest, ' ')
	if ok = ok && number; ok {
		s, cut, ok = registry[a].engine.parse(last, rest)
	}
	if !ok {
		return State{}, false, fmt.Errorf("%q is not the state of a %s bucket", text, a)
	}
	return s, cut, nil
}

// appendText appends the text of the floor, which ParseState and the script read: "" for an unused bucket.
func (f *Floor) appendText(b []byte, a Algorithm) []byte {
	if f.State.Empty() {
		return b
	}
	s := f.lowest()
	return registry[a].engine.text(b, &s)
}

// cutNumbers reads the first count numbers, at most four, which are separated by spaces.
func cutNumbers(s string, count int) (n [4]int64, rest string, ok bool) {
	for i := range count {
		if n[i], s, ok = cutNumber(s, ' '); !ok {
			return n, s, false
		}
	}
	return n, s, true
}

// cutNumber reads the digits before the first separator, or all digits. It needs at least one.
func cutNumber(s string, separator byte) (n int64, rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == separator:
			return n, s[i+1:], i > 0
		case c < '0' || c > '9' || n > math.MaxInt64/10-1:
			return 0, s, false
		default:
			n = n*10 + int64(c-'0')
		}
	}
	return n, "", len(s) > 0
}
