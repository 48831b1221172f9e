package bucket

import (
	"fmt"
	"math"
	"strings"
)

// parse reads the text that the script stores for a bucket of this algorithm; "" is an unused bucket. A text that the
// script cut for an answer makes a State that describes the bucket, but cannot be decided on. cut is Seen.Cut.
func (s *State) parse(a Algorithm, text string) (cut bool, err error) {
	*s = State{}
	if text == "" {
		return false, nil
	}
	tag := strings.IndexByte(text, ' ') // only the Lua checks it, because other programs can write to Redis
	last, rest, ok := cutNumber(text[tag+1:], ' ')
	if ok = ok && tag >= 0; ok {
		s.Last = last
		cut, ok = registry[a].engine.parse(s, rest)
	}
	if !ok {
		*s = State{}
		return false, fmt.Errorf("%q is not the state of a %s bucket", text, a)
	}
	return cut, nil
}

// appendText appends the text of the floor, which parse and the script read: "" for an unused bucket.
func (f *Floor) appendText(b []byte, a Algorithm) []byte {
	if f.State.Empty() {
		return b
	}
	s := f.lowest()
	return registry[a].engine.text(b, &s)
}

// cutNumber reads the digits before the first separator, or all digits. It needs at least one.
func cutNumber(s string, separator byte) (n int64, rest string, ok bool) {
	i := 0
	for ; i < len(s) && s[i] != separator; i++ {
		digit := s[i] - '0'
		if digit > 9 || n > math.MaxInt64/10-1 {
			return 0, s, false
		}
		n = n*10 + int64(digit)
	}
	return n, s[min(i+1, len(s)):], i > 0
}
