package replay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Request is a request to both services.
type Request = ratelimitv3.RateLimitRequest

// Bounds of a sample.
const (
	MaxRequests = 10_000
	maxLine     = 1 << 20
)

// Read reads recorded requests, one RateLimitRequest in JSON a line. Empty lines are skipped. name is the name of the
// file in errors, which have the number of the line.
func Read(name string, from io.Reader) ([]*Request, error) {
	return readLines(name, from, "RateLimitRequest", func(line []byte) (*Request, error) {
		r := new(Request)
		if err := protojson.Unmarshal(line, r); err != nil {
			return nil, fmt.Errorf("no RateLimitRequest in JSON: %w", err)
		}
		if r.GetDomain() == "" || len(r.GetDescriptors()) == 0 {
			return nil, errors.New("a request needs `domain` and `descriptors`")
		}
		return r, nil
	})
}

// readLines reads a sample, one request a line. what names a request.
func readLines[R any](name string, from io.Reader, what string, parse func(line []byte) (R, error),
) (requests []R, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if len(requests) == MaxRequests {
			return nil, fmt.Errorf("%s:%d: more than %d requests: take a part of the file", name, n, MaxRequests)
		}
		r, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		requests = append(requests, r)
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("%s: a line has more than %d bytes", name, maxLine)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(requests) == 0 {
		return nil, fmt.Errorf("%s has no requests: want one %s in JSON a line", name, what)
	}
	return requests, nil
}

// Generate makes requests from rules. For each rule it makes up to six, which use up its smallest limit and are denied
// twice. word is the value of entries for which a rule takes any value. Generate stops at MaxRequests.
func Generate(domains []ratelimit.Domain, word string) (requests []*Request) {
	for _, d := range domains {
		requests = generate(requests, d.Name, nil, d.Descriptors, word)
	}
	return requests
}

func generate(requests []*Request, domain string, above []*commonv3.RateLimitDescriptor_Entry, nodes []ratelimit.Node,
	word string,
) []*Request {
	for i := range nodes {
		n := &nodes[i]
		value := strings.ReplaceAll(n.Value, "*", word)
		if n.Value == "" {
			value = word
		}
		entry := &commonv3.RateLimitDescriptor_Entry{Key: strings.ReplaceAll(n.Key, "*", word), Value: value}
		entries := append(above[:len(above):len(above)], entry)
		if len(n.AllLimits()) > 0 || len(n.Descriptors) == 0 {
			for _, hits := range costs(n.AllLimits()) {
				if len(requests) == MaxRequests {
					return requests
				}
				requests = append(requests, &Request{
					Domain: domain, HitsAddend: hits,
					Descriptors: []*commonv3.RateLimitDescriptor{{Entries: entries}},
				})
			}
		}
		requests = generate(requests, domain, entries, n.Descriptors, word)
	}
	return requests
}

// costs returns the hits of requests that use up the smallest of limits, and of two more. 0 stands for one hit.
func costs(limits []ratelimit.Limit) []uint32 {
	smallest := int64(math.MaxInt64)
	for _, l := range limits {
		if l.Unlimited {
			continue
		}
		n := int64(0)
		if l.Requests != nil {
			n = *l.Requests
		}
		if l.Burst > 0 {
			n = min(n, l.Burst)
		}
		smallest = min(smallest, n)
	}
	const few = 4
	switch {
	case smallest == math.MaxInt64:
		return []uint32{0} // no limit
	case smallest <= few:
		return make([]uint32, smallest+2)
	}
	return []uint32{0, uint32(smallest - 3), 0, 0, 0, 0}
}
