package telemetry

import (
	"cmp"
	_ "embed" // the default mapping
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
	"go.yaml.in/yaml/v4"
)

//go:embed mapping.yaml
var defaultMapping []byte

// Mapping gives statistics a name and labels for Prometheus. It is a file of Prometheus' statsd_exporter, which
// envoyproxy/ratelimit reads, too. Some keys have no effect here: a counter is always a counter, a timer a histogram.
type Mapping struct{ mapper mapper.MetricMapper }

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
	for i := range m.mapper.Mappings {
		m.mapper.Mappings[i].Scale.Set = false
	}
	return m
}

// ParseMapping reads a mapping. Its error lists every mistake.
func ParseMapping(text []byte) (*Mapping, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	modernize(&file)
	var rules struct {
		Defaults mapper.MapperConfigDefaults `yaml:"defaults"`
		Mappings []mapper.MetricMapping      `yaml:"mappings"`
	}
	var mistakes []error
	if !file.IsZero() {
		mistakes = append(mistakes, file.Load(&rules, yaml.WithKnownFields()))
	}
	for i, rule := range rules.Mappings {
		rule.MatchType = cmp.Or(rule.MatchType, rules.Defaults.MatchType)
		if err := check(&rule); err != nil {
			mistakes = append(mistakes, fmt.Errorf("mapping %d (match %q): %w", i+1, rule.Match, err))
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(&file)
	if err != nil {
		return nil, err
	}
	m := new(Mapping)
	return m, m.mapper.InitFromYAMLString(string(text))
}

// modernize removes what statsd_exporter no longer reads, but the files of envoyproxy/ratelimit and Envoy Gateway have.
func modernize(n *yaml.Node) {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		switch key, value := n.Content[i], n.Content[i+1]; {
		case key.Value == "timer_type", key.Value == "buckets", key.Value == "quantiles":
			n.Content = slices.Delete(n.Content, i, i+2)
			i -= 2
		case key.Value == "match_metric_type" && value.Value == "timer":
			value.Value = string(mapper.MetricTypeObserver)
		}
	}
	for i, part := range n.Content {
		if i == 0 || n.Content[i-1].Value != "labels" {
			modernize(part)
		}
	}
}

// check returns the mistakes of a rule. The library returns only the first one of a file, so it reads each rule alone.
func check(rule *mapper.MetricMapping) error {
	if rule.Name == "" {
		return errors.New("name: want the name of a metric")
	}
	text, err := yaml.Marshal(map[string]any{"mappings": []any{map[string]any{
		"match": rule.Match, "match_type": rule.MatchType, "name": rule.Name, "labels": rule.Labels,
	}}})
	if err != nil {
		return err
	}
	mistakes := []error{new(mapper.MetricMapper).InitFromYAMLString(string(text))}
	if ownName(rule.Name) {
		mistakes = append(mistakes, fmt.Errorf("name: %s is the name of another metric", rule.Name))
	}
	for label := range rule.Labels {
		if label == "le" || strings.HasPrefix(label, "__") {
			mistakes = append(mistakes, fmt.Errorf("labels: %q cannot be the name of a label", label))
		}
	}
	return errors.Join(mistakes...)
}

// ownName reports whether a name is that of an unmapped metric. Prometheus refuses a scrape with two of one name.
func ownName(name string) bool {
	return slices.ContainsFunc([]string{"extauthz_", "go_", "process_", "promhttp_"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// series maps a statistic. Without a rule, its name stays. It is dropped if another metric has the name.
func (m *Mapping) series(stat string, kind mapper.MetricType) *series {
	s := &series{name: metricName(stat), scale: 1}
	if rule, labels, ok := m.mapper.GetMapping(stat, kind); ok {
		s.name, s.labels, s.drop = metricName(rule.Name), labels, rule.Action == mapper.ActionTypeDrop
		if rule.Scale.Set {
			s.scale = rule.Scale.Val
		}
	}
	s.drop = s.drop || ownName(s.name)
	maps.DeleteFunc(s.labels, func(_, value string) bool { return value == "" }) // to Prometheus, an empty label is none
	help := cmp.Or(statHelp[s.name], "A statistic of envoyproxy/ratelimit, as PROMETHEUS_MAPPER_YAML names it.")
	s.desc = prometheus.NewDesc(s.name, help, nil, s.labels)
	s.key = s.desc.String()
	return s
}

var notInNames = regexp.MustCompile(`[^a-zA-Z0-9_]`)

// metricName replaces the characters that a name cannot have.
func metricName(s string) string {
	s = notInNames.ReplaceAllString(s, "_")
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return "_" + s
	}
	return s
}
