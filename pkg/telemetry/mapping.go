package telemetry

import (
	"bytes"
	_ "embed" // the default mapping
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

//go:embed mapping.yaml
var defaultMapping []byte

// Mapping gives statistics a name and labels for Prometheus. It is a file of Prometheus' statsd_exporter, which
// envoyproxy/ratelimit reads, too.
type Mapping struct{ rules []mappingRule }

// mappingRule is an element of mappings. Keys that have no effect here are accepted: a counter is always a counter, and
// a timer a histogram.
type mappingRule struct {
	Match           string            `yaml:"match"`
	MatchType       string            `yaml:"match_type"`
	MatchMetricType string            `yaml:"match_metric_type"`
	Name            string            `yaml:"name"`
	Labels          map[string]string `yaml:"labels"`
	Action          string            `yaml:"action"`
	Scale           *float64          `yaml:"scale"`

	Help             any `yaml:"help"`
	TimerType        any `yaml:"timer_type"`
	ObserverType     any `yaml:"observer_type"`
	HistogramOptions any `yaml:"histogram_options"`
	SummaryOptions   any `yaml:"summary_options"`
	TTL              any `yaml:"ttl"`
	HonorLabels      any `yaml:"honor_labels"`

	pattern *regexp.Regexp
}

// metricKind is the type of a statistic.
type metricKind uint8

const (
	counterKind metricKind = iota
	timerKind
)

// DefaultMapping is the mapping of an envoyproxy/ratelimit without PROMETHEUS_MAPPER_YAML.
func DefaultMapping() *Mapping {
	m, err := ParseMapping(defaultMapping)
	if err != nil {
		panic(err) // a test parses it
	}
	return m
}

// WithoutScale removes the scales, so that times are in milliseconds (PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS).
func (m *Mapping) WithoutScale() *Mapping {
	for i := range m.rules {
		m.rules[i].Scale = nil
	}
	return m
}

// ParseMapping reads a mapping. Its error lists every mistake.
func ParseMapping(text []byte) (*Mapping, error) {
	var file struct {
		Defaults struct {
			MatchType           string `yaml:"match_type"`
			TimerType           any    `yaml:"timer_type"`
			ObserverType        any    `yaml:"observer_type"`
			Buckets             any    `yaml:"buckets"`
			Quantiles           any    `yaml:"quantiles"`
			HistogramOptions    any    `yaml:"histogram_options"`
			SummaryOptions      any    `yaml:"summary_options"`
			GlobDisableOrdering any    `yaml:"glob_disable_ordering"`
			TTL                 any    `yaml:"ttl"`
		} `yaml:"defaults"`
		Mappings []mappingRule `yaml:"mappings"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var mistakes []error
	globs, patterns := []mappingRule{}, []mappingRule{}
	for i, rule := range file.Mappings {
		if rule.MatchType == "" {
			rule.MatchType = file.Defaults.MatchType
		}
		if err := rule.compile(); err != nil {
			mistakes = append(mistakes, fmt.Errorf("mapping %d (match %q): %w", i+1, rule.Match, err))
			continue
		}
		if rule.MatchType == "regex" {
			patterns = append(patterns, rule)
			continue
		}
		globs = append(globs, rule)
	}
	// Globs come first, as in statsd_exporter.
	return &Mapping{append(globs, patterns...)}, errors.Join(mistakes...)
}

var (
	glob         = regexp.MustCompile(`^(\*|[a-zA-Z_][a-zA-Z0-9_-]*)(\.(\*|[a-zA-Z0-9_][a-zA-Z0-9_-]*))*$`)
	nameTemplate = regexp.MustCompile(`^([a-zA-Z_]|\$\{?\d+\}?)([a-zA-Z0-9_]|\$\{?\d+\}?)*$`)
	labelName    = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	placeholder  = regexp.MustCompile(`\$\{?(\d+)\}?`)
)

// compile checks the rule and prepares its pattern.
func (r *mappingRule) compile() (err error) {
	switch r.MatchType {
	case "", "glob":
		if !glob.MatchString(r.Match) {
			return errors.New("match: want names and * between dots")
		}
		match := strings.ReplaceAll(regexp.QuoteMeta(r.Match), `\*`, `([^.]*)`)
		r.pattern = regexp.MustCompile("^" + match + "$")
		r.Name = placeholder.ReplaceAllString(r.Name, "$${$1}")
		for label, value := range r.Labels {
			r.Labels[label] = placeholder.ReplaceAllString(value, "$${$1}")
		}
	case "regex":
		if r.pattern, err = regexp.Compile(r.Match); err != nil {
			return fmt.Errorf("match: %w", err)
		}
	default:
		return errors.New("match_type: want glob or regex")
	}
	switch r.MatchMetricType {
	case "", "counter", "gauge", "timer", "observer":
	default:
		return errors.New("match_metric_type: want counter, gauge, observer or timer")
	}
	if r.Action != "" && r.Action != "map" && r.Action != "drop" {
		return errors.New("action: want map or drop")
	}
	if !nameTemplate.MatchString(r.Name) {
		return errors.New("name: want the name of a metric: letters, digits, underscores and $1")
	}
	if ownName(r.Name) {
		return fmt.Errorf("name: %s is the name of another metric", r.Name)
	}
	for label := range r.Labels {
		if !labelName.MatchString(label) || label == "le" || strings.HasPrefix(label, "__") {
			return fmt.Errorf("labels: %q cannot be the name of a label", label)
		}
	}
	return nil
}

// ownName reports whether a name is one of the metrics that are not mapped. Prometheus refuses a scrape with two
// metrics of one name.
func ownName(name string) bool {
	for _, prefix := range [...]string{"extauthz_", "go_", "process_", "promhttp_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// mapped is what a mapping makes of a statistic.
type mapped struct {
	name   string
	labels map[string]string
	scale  float64
	drop   bool
}

// find maps a statistic. Without a rule for it, the metric has its name and no labels.
func (m *Mapping) find(stat string, kind metricKind) mapped {
	for i := range m.rules {
		r := &m.rules[i]
		if !r.is(kind) {
			continue
		}
		match := r.pattern.FindStringSubmatchIndex(stat)
		if match == nil {
			continue
		}
		expand := func(template string) string {
			return string(r.pattern.ExpandString(nil, template, stat, match))
		}
		to := mapped{name: metricName(expand(r.Name)), labels: make(map[string]string), scale: 1, drop: r.Action == "drop"}
		for label, value := range r.Labels {
			to.labels[label] = expand(value)
		}
		if r.Scale != nil {
			to.scale = *r.Scale
		}
		return to
	}
	return mapped{name: metricName(stat), scale: 1}
}

// is reports whether the rule maps statistics of this type.
func (r *mappingRule) is(kind metricKind) bool {
	switch r.MatchMetricType {
	case "counter":
		return kind == counterKind
	case "timer", "observer":
		return kind == timerKind
	case "gauge":
		return false
	}
	return true
}

// metricName replaces the characters that a name cannot have.
func metricName(s string) string {
	s = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' {
			return c
		}
		return '_'
	}, s)
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return "_" + s
	}
	return s
}
