package jwt

import (
	"context"
	"fmt"
	"os"
	"time"
)

// pollInterval is how often a file is read: the kernel's notices miss changes on network file systems and behind links
// of a ConfigMap. A file that is being written needs no second look: no part of a JSON object is one.
const pollInterval = time.Second

// file is the origin at a path.
func file(path string) origin {
	return origin{path, pollInterval, func(context.Context) (text []byte, fresh time.Duration, err error) {
		opened, err := os.Open(path)
		if err != nil {
			return nil, 0, fmt.Errorf("read keys: %w", err)
		}
		defer opened.Close()
		if text, err = readBounded(opened); err != nil {
			return nil, 0, fmt.Errorf("read keys from %s: %w", path, err)
		}
		return text, pollInterval, nil
	}}
}
