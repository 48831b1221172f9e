package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/extauthz/extauthz/pkg/telemetry"
)

// newStatsd returns the sender of statistics, nil if none are sent. The log has a warning if the server of a setting
// cannot be reached. By default there may be no server.
func newStatsd(s *Settings, log *slog.Logger) (*telemetry.Statsd, error) {
	if !s.UseStatsd && !s.UseDogStatsd {
		return nil, nil //nolint:nilnil // nil sends nothing
	}
	cfg := telemetry.StatsdConfig{
		Network: s.StatsdProtocol, Address: net.JoinHostPort(s.StatsdHost, strconv.Itoa(int(s.StatsdPort))),
		Interval: s.FlushInterval, Tags: s.ExtraTags, Dog: s.UseDogStatsd, Mogrifiers: s.mogrifiers,
		Log: log, Level: slog.LevelInfo,
	}
	if s.UseDogStatsd {
		cfg.Network = "udp"
	}
	for _, name := range []string{"USE_STATSD", "USE_DOG_STATSD", "STATSD_HOST", "STATSD_PORT"} {
		if s.environment[name] != "" {
			cfg.Level = slog.LevelWarn
		}
	}
	return telemetry.NewStatsd(cfg)
}

// openStatistics registers the metrics of envoyproxy/ratelimit, and sends its statistics until closed is called, which
// waits until the last ones are sent.
func (s *Settings) openStatistics(ctx context.Context, stats *telemetry.Stats, log *slog.Logger,
	r prometheus.Registerer) (closed func(), err error) {
	mapping, err := s.metricMapping(log)
	if err != nil {
		return nil, err
	}
	r.MustRegister(telemetry.NewMapped(stats, mapping))
	statsd, err := newStatsd(s, log)
	if err != nil {
		return nil, err
	}
	stats.Calls.SendTimes(statsd)
	if statsd == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var sending sync.WaitGroup
	sending.Go(func() { statsd.Run(ctx, stats) })
	return func() { cancel(); sending.Wait() }, nil
}

// tags are pairs of a key and a value, sorted by key.
type tags []telemetry.Tag

// UnmarshalText accepts pairs with a colon, separated by commas.
func (t *tags) UnmarshalText(text []byte) error {
	*t = nil
	for pair := range strings.SplitSeq(string(text), ",") {
		key, value, ok := strings.Cut(pair, ":")
		if pair == "" && len(text) == 0 {
			return nil
		}
		if !ok || key == "" || value == "" || strings.ContainsAny(pair, "|\n\r") || strings.ContainsAny(key, ".=") {
			return errors.New("want key:value pairs with commas between them, such as cluster:east,stage:test")
		}
		*t = append(*t, telemetry.Tag{Key: key, Value: value})
	}
	slices.SortStableFunc(*t, func(a, b telemetry.Tag) int { return strings.Compare(a.Key, b.Key) })
	return nil
}

// mogrifierNames are the names in USE_DOG_STATSD_MOGRIFIERS.
type mogrifierNames []string

// UnmarshalText accepts names that are separated by commas.
func (m *mogrifierNames) UnmarshalText(text []byte) error {
	*m = nil
	for name := range strings.SplitSeq(string(text), ",") {
		if name == "" && len(text) == 0 {
			return nil
		}
		if !mogrifierName.MatchString(name) {
			return errors.New("want names of letters, digits and underscores, with commas between them, such as HITS,DOMAIN")
		}
		*m = append(*m, strings.ToUpper(name))
	}
	return nil
}

var mogrifierName = regexp.MustCompile(`^[a-zA-Z0-9_]+$`)

// ofMogrifier reports whether a variable belongs to a name in USE_DOG_STATSD_MOGRIFIERS.
func (e Environment) ofMogrifier(variable string) bool {
	var names mogrifierNames
	if names.UnmarshalText([]byte(e["USE_DOG_STATSD_MOGRIFIERS"])) != nil {
		return false
	}
	return slices.ContainsFunc(names, func(name string) bool {
		what, ok := strings.CutPrefix(variable, mogrifierPrefix+name+"_")
		return ok && (what == "PATTERN" || what == "NAME" || what == "TAGS")
	})
}

const mogrifierPrefix = "DOG_STATSD_MOGRIFIER_"

// readMogrifiers reads the variables of each name in USE_DOG_STATSD_MOGRIFIERS, and returns their mistakes. Only
// DogStatsD uses them.
func (s *Settings) readMogrifiers() (mistakes []string) {
	if !s.UseDogStatsd {
		return nil
	}
	for _, name := range s.MogrifierNames {
		variable := mogrifierPrefix + name
		m := telemetry.Mogrifier{Name: s.environment[variable+"_NAME"]}
		if m.Name == "" {
			mistakes = append(mistakes, variable+"_NAME: want the name of the statistic, such as ratelimit.$1")
		}
		pattern := s.environment[variable+"_PATTERN"]
		var err error
		if m.Pattern, err = regexp.Compile(pattern); pattern == "" || err != nil {
			mistakes = append(mistakes, variable+`_PATTERN: want a regular expression, such as ^ratelimit\.(.*)$`)
		}
		var t tags
		if err := t.UnmarshalText([]byte(s.environment[variable+"_TAGS"])); err != nil {
			mistakes = append(mistakes, fmt.Sprintf("%s_TAGS: %v", variable, err))
		}
		m.Tags = t
		s.mogrifiers = append(s.mogrifiers, m)
	}
	return mistakes
}
