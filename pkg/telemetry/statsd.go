package telemetry

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"
)

// StatsdConfig is where to send statistics, and how. All fields but Tags and Mogrifiers are required.
type StatsdConfig struct {
	// Network is tcp or udp. Address is a host and a port.
	Network, Address string
	// Interval is how often the growth of the counters is sent.
	Interval time.Duration
	// Tags belong to each statistic.
	Tags []Tag
	// Dog sends tags as DogStatsD does. Else they are a part of the name.
	Dog bool
	// Mogrifiers name statistics for DogStatsD. The first that matches a statistic does.
	Mogrifiers []Mogrifier
	// Log gets a line at Level if the server cannot be reached.
	Log   *slog.Logger
	Level slog.Level
}

// Tag is a label of statistics.
type Tag struct{ Key, Value string }

// Statsd sends statistics to a statsd server: the growth of each counter in an interval, and the time of each call.
// Nothing waits for the server. Use NewStatsd, then Run.
type Statsd struct {
	cfg    StatsdConfig
	suffix string // the tags as a part of names
	link   *link
	// times waits for nothing: its full queue loses times. counters is flushed before its queue is full.
	times, counters *statsd.Client
	sent            map[string]uint64 // the counters that the server knows
}

// buffers is the length of the queues of datagrams. A statistic has at most one datagram.
const buffers, workers = 256, 2

// NewStatsd returns a sender that connects in Run.
func NewStatsd(cfg StatsdConfig) (*Statsd, error) {
	s := &Statsd{cfg: cfg, link: newLink(cfg), sent: make(map[string]uint64)}
	options := []statsd.Option{
		statsd.WithoutTelemetry(), statsd.WithoutClientSideAggregation(),
		statsd.WithBufferPoolSize(buffers), statsd.WithSenderQueueSize(buffers), statsd.WithWorkersCount(workers),
	}
	if !cfg.Dog {
		options = append(options, statsd.WithoutOriginDetection()) // the container is a field of DogStatsD
		for _, tag := range cfg.Tags {
			s.suffix += ".__" + tag.Key + "=" + tagValue.Replace(tag.Value)
		}
	}
	var err error
	if s.times, err = statsd.NewWithWriter(s.link, options...); err == nil {
		s.counters, err = statsd.NewWithWriter(s.link, append(options, statsd.WithWorkersCount(1))...)
	}
	return s, err
}

// tagValue replaces the characters that end a tag in a name.
var tagValue = strings.NewReplacer(".", "_", ":", "_", "|", "_")

// Run sends the counters until ctx is done, and once more then. Calls must not be observed after that.
func (s *Statsd) Run(ctx context.Context, stats *Stats) {
	s.link.connect(ctx)
	ticker := time.NewTicker(s.cfg.Interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
			s.link.connect(ctx)
		case <-ctx.Done():
		}
		s.flush(stats)
	}
	// The first closes the link. There is nothing left to do about an error.
	_, _ = s.times.Close(), s.counters.Close()
}

// flush sends how much each counter has grown. What it cannot send without a connection, the next flush sends.
func (s *Statsd) flush(stats *Stats) {
	now := stats.Counters()
	maps.DeleteFunc(s.sent, func(stat string, sent uint64) bool { return now[stat] < sent }) // the rule was absent
	queued := 0
	for stat, n := range now {
		if !s.link.up.Load() {
			return
		}
		if grown := n - s.sent[stat]; grown > 0 {
			name, tags := s.name(stat)
			_ = s.counters.Count(name, int64(grown), tags, 1) // its only error is that it is closed
			queued++
		}
		s.sent[stat] = n
		if queued == buffers {
			_, queued = s.counters.Flush(), 0 // as above
		}
	}
	_ = s.counters.Flush()
}

// timer returns a function that sends the time of a call of a method.
func (s *Statsd) timer(rpc string) func(time.Duration) {
	name, tags := s.name("ratelimit_server." + rpc + ".response_time")
	return func(took time.Duration) {
		if s.link.up.Load() {
			// as in flush
			_ = s.times.TimeInMilliseconds(name, float64(took.Microseconds())/1000, tags, 1)
		}
	}
}

// name returns the name and tags of a statistic for the server.
func (s *Statsd) name(stat string) (name string, tags []string) {
	if !s.cfg.Dog {
		return stat + s.suffix, nil
	}
	for _, tag := range s.cfg.Tags {
		tags = append(tags, tag.Key+":"+tagValue.Replace(tag.Value))
	}
	for i := range s.cfg.Mogrifiers {
		if mogrified, more, ok := s.cfg.Mogrifiers[i].mogrify(stat); ok {
			return mogrified, append(tags, more...)
		}
	}
	return stat, tags
}
