package jwt

import (
	"context"
	"fmt"
	"time"

	"github.com/extauthz/extauthz/internal/poll"
)

// pollInterval is how often a file is read. A half-written file is an error: no part of a JSON object is a JSON object.
const pollInterval = time.Second

// file returns the origin at a path.
func file(path string) origin {
	return origin{path, pollInterval, func(context.Context) (text []byte, fresh time.Duration, err error) {
		if text, _, err = poll.Read(path, maxDocument); err == nil {
			err = checkSize(text)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read keys from %s: %w", path, err)
		}
		return text, pollInterval, nil
	}}
}
