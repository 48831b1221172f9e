package xds

import (
	"errors"
	"fmt"
	"math"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/wire"
)

// maxDescriptors bounds the resources, descriptors and replaced names of a response, because a descriptor takes 100
// times the two bytes of an empty one. maxDepth bounds how deeply descriptors are nested; a request of Envoy has at
// most 16 entries. maxNames bounds the names of all rules together, because each repeats those above it. maxWildcards
// bounds time: a search tries all wildcards of a level that share their parts. maxValues bounds the values in metadata
// of a response; a descriptor has at most wire.MostValues.
const (
	maxDescriptors = 100_000
	maxDepth       = 32
	maxNames       = 32 << 20
	maxWildcards   = 10_000
	maxValues      = 65_536
)

var (
	errTooMany       = fmt.Errorf("more than %d resources and descriptors in one response", maxDescriptors)
	errTooDeep       = fmt.Errorf("descriptors are nested deeper than %d levels", maxDepth)
	errLongNames     = fmt.Errorf("the names of all rules of one response are longer than %d MiB", maxNames>>20)
	errTooManyWilds  = fmt.Errorf("more than %d descriptors with a wildcard in one response", maxWildcards)
	errMuchMetadata  = fmt.Errorf("`metadata` has more than %d values", wire.MostValues)
	errTooManyValues = fmt.Errorf("more than %d values in `metadata` of one response", maxValues)
)

// Fields of RateLimitConfig and of the messages in it (ratelimit.config.ratelimit.v3), as tags on the wire.
const (
	configName        = 1<<3 | wire.Bytes
	configDomain      = 2<<3 | wire.Bytes
	configDescriptors = 3<<3 | wire.Bytes

	descriptorKey         = 1<<3 | wire.Bytes
	descriptorValue       = 2<<3 | wire.Bytes
	descriptorLimit       = 3<<3 | wire.Bytes
	descriptorDescriptors = 4<<3 | wire.Bytes
	descriptorShadow      = 5<<3 | wire.Varint
	descriptorDetailed    = 6<<3 | wire.Varint
	descriptorQuota       = 7<<3 | wire.Varint
	descriptorMetadata    = 8<<3 | wire.Bytes

	limitUnit      = 1<<3 | wire.Varint
	limitRequests  = 2<<3 | wire.Varint
	limitUnlimited = 3<<3 | wire.Varint
	limitName      = 4<<3 | wire.Bytes
	limitReplaces  = 5<<3 | wire.Bytes
)

// resource is a RateLimitConfig.
type resource struct {
	ratelimit.Domain
	name string
	// label is the resource in messages.
	label string
	// touched are the paths of descriptors that the overlay has changed, and the positions of its entries.
	touched map[string]string
}

// label returns the name of a resource for messages, with its number if it has no name.
func label(name string, i int) string {
	if name == "" {
		return fmt.Sprintf("resource %d", i+1)
	}
	return "resource " + suggest.Quoted(name)
}

// problem returns an error at a path of a resource.
func problem(label, path, message string, hints ...string) strictyaml.Problem {
	if path != "" {
		label += ": " + path
	}
	return strictyaml.Problem{File: label, Message: message, Hints: hints}
}

// reader reads resources. left (resources, descriptors, replaced names) and the others are how much it may still read.
type reader struct{ left, names, wildcards, values int }

// config reads a RateLimitConfig as far as it is well-formed. Nothing in it is checked. A text may be not UTF-8.
func (r *reader) config(msg string, i int) (*resource, error) {
	res := &resource{}
	// The positions of the descriptors have the name, which may come after them.
	f := wire.Read(msg)
	for f.Next() {
		switch f.Tag {
		case configName:
			res.name = f.Text
		case configDomain:
			res.Name = f.Text
		}
	}
	res.label = label(res.name, i)
	res.Position = res.label
	if err := f.Err(); err != nil {
		return res, err
	}
	return res, r.list(&res.Descriptors, msg, configDescriptors, level{at: res.label + ": descriptors", depth: 1})
}

// level is the place of a list of descriptors.
type level struct {
	at    string // its position
	depth int
	above int // the length of the name of the rule above
}

// list reads the descriptors that are fields of a message with a tag.
func (r *reader) list(list *[]ratelimit.Node, msg string, tag uint64, l level) error {
	f := wire.Read(msg)
	for f.Next() {
		if f.Tag != tag {
			continue
		}
		if l.depth > maxDepth {
			return errTooDeep
		}
		n := ratelimit.Node{Position: ratelimit.Element(l.at, len(*list))}
		err := r.descriptor(&n, f.Text, l)
		if *list = append(*list, n); err != nil {
			return err
		}
	}
	return f.Err()
}

// count counts one more descriptor, resource or replaced name.
func (r *reader) count() error {
	if r.left == 0 {
		return errTooMany
	}
	r.left--
	return nil
}

// countName counts the name of a descriptor.
func (r *reader) countName(n *ratelimit.Node, length int) error {
	if r.names -= length; r.names < 0 {
		return errLongNames
	}
	if !(descriptors.Pattern{Key: n.Key, Value: n.Value}).Wildcard() {
		return nil
	}
	if r.wildcards--; r.wildcards < 0 {
		return errTooManyWilds
	}
	return nil
}

func (r *reader) descriptor(n *ratelimit.Node, msg string, l level) error {
	if err := r.count(); err != nil {
		return err
	}
	nested, before := false, r.values
	f := wire.Read(msg)
	for f.Next() {
		var err error
		switch f.Tag {
		case descriptorKey:
			n.Key = f.Text
		case descriptorValue:
			n.Value = f.Text
		case descriptorLimit:
			if n.RateLimit == nil { // a second one is merged, as by the generated code
				n.RateLimit = &ratelimit.Limit{Position: n.Position}
			}
			err = r.limit(n.RateLimit, f.Text)
		case descriptorDescriptors:
			nested = true
		case descriptorShadow:
			n.Shadow = f.Number != 0
		case descriptorDetailed:
			n.DetailedMetric = f.Number != 0
		case descriptorQuota:
			n.Quota = f.Number != 0
		case descriptorMetadata:
			err = r.metadata(n, f.Text, before)
		}
		if err != nil {
			return err
		}
	}
	if err := f.Err(); err != nil {
		return err
	}
	if limit := n.RateLimit; limit != nil && limit.Requests == nil && !limit.Unlimited {
		limit.Requests = new(int64(0)) // proto3 has no absent numbers: 0 denies every request
	}
	length := l.above + len(n.Key) + len(n.Value) + len("._")
	if err := r.countName(n, length); err != nil || !nested {
		return err
	}
	below := level{at: n.Position + ".descriptors", depth: l.depth + 1, above: length}
	return r.list(&n.Descriptors, msg, descriptorDescriptors, below)
}

func (r *reader) limit(l *ratelimit.Limit, msg string) error {
	f := wire.Read(msg)
	for f.Next() {
		switch f.Tag {
		case limitUnit:
			// The numbers of RateLimitUnit are those of descriptors.Unit. Others are unknown to both.
			l.Unit = descriptors.Unit(min(uint32(f.Number), math.MaxUint8))
		case limitRequests:
			l.Requests = new(int64(uint32(f.Number)))
		case limitUnlimited:
			l.Unlimited = f.Number != 0
		case limitName:
			l.Name = f.Text
		case limitReplaces:
			if err := r.count(); err != nil {
				return err
			}
			name, _, err := wire.ReadEntry(f.Text) // a RateLimitReplace has only a name
			if l.Replaces = append(l.Replaces, ratelimit.Replaced{Name: name}); err != nil {
				return err
			}
		}
	}
	return f.Err()
}

// metadata reads metadata, a google.protobuf.Struct. before is how many values were left before the descriptor.
func (r *reader) metadata(n *ratelimit.Node, msg string, before int) error {
	values, err := wire.CountValues(msg)
	r.values -= values
	switch {
	case err != nil:
		return err
	case before-r.values > wire.MostValues:
		return errMuchMetadata
	case r.values < 0:
		return errTooManyValues
	}
	if n.Metadata == nil {
		n.Metadata = map[string]any{}
	}
	if wire.ReadStruct(msg, n.Metadata) != nil || depth(n.Metadata) >= wire.MaxDepth {
		return errors.New("`metadata` is nested too deeply, or has a text that is not UTF-8")
	}
	return nil
}

// depth returns how deeply maps and lists are nested in a value.
func depth(v any) (most int) {
	switch v := v.(type) {
	case map[string]any:
		for _, item := range v {
			most = max(most, depth(item))
		}
	case []any:
		for _, item := range v {
			most = max(most, depth(item))
		}
	default:
		return 0
	}
	return most + 1
}
