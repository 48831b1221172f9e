package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// StatsdConfig is where to send statistics, and how. All fields but Tags and Mogrifiers are required.
type StatsdConfig struct {
	// Network is tcp or udp. Address is a host and a port.
	Network, Address string
	// Interval is how often the growth of the counters is sent.
	Interval time.Duration
	// Tags belong to each statistic.
	Tags []Tag
	// Dog sends tags as DogStatsD does. Otherwise they are a part of the name.
	Dog bool
	// Mogrifiers name statistics for DogStatsD. The first that matches a statistic does. They need Dog.
	Mogrifiers []Mogrifier
	// Log gets a line at Level if the server cannot be reached.
	Log   *slog.Logger
	Level slog.Level
}

// Tag is a label of statistics.
type Tag struct{ Key, Value string }

const (
	dialTimeout, writeTimeout = 1500 * time.Millisecond, time.Second
	// timesInterval is how often times are sent. Times beyond maxTimes bytes in an interval are lost.
	timesInterval, maxTimes = 100 * time.Millisecond, 256 << 10
	maxDatagram             = 1432      // most networks do not split a datagram of this size
	lossLogged              = time.Hour // how often the log repeats that the server cannot be reached
)

// Statsd sends statistics to a statsd server: the growth of each counter in an interval, each gauge, and the time of
// each call. Nothing but Run waits for the server. Use NewStatsd, then Run.
type Statsd struct {
	cfg    StatsdConfig
	conn   net.Conn          // nil without a connection
	logged time.Time         // when the log last had a line about the server
	sent   map[string]uint64 // the counters that the server knows

	up    atomic.Bool // conn is not nil
	mu    sync.Mutex
	times []byte // the lines that are not sent yet
}

// NewStatsd returns a sender that connects in Run.
func NewStatsd(cfg StatsdConfig) *Statsd { return &Statsd{cfg: cfg, sent: make(map[string]uint64)} }

// Run sends the statistics until ctx is done, and once more then. Calls must not be observed after that.
func (s *Statsd) Run(ctx context.Context, stats *Stats) {
	counters, times := time.NewTicker(s.cfg.Interval), time.NewTicker(timesInterval)
	defer counters.Stop()
	defer times.Stop()
	for s.connect(ctx); ctx.Err() == nil; {
		select {
		case <-times.C:
			s.sendTimes()
		case <-counters.C:
			s.connect(ctx)
			s.sendCounters(stats.Counters())
			s.sendGauges(stats.Gauges())
		case <-ctx.Done():
		}
	}
	s.sendTimes()
	s.sendCounters(stats.Counters())
	s.close()
}

// sendCounters sends how much each counter has grown. What it cannot send, the next call sends.
func (s *Statsd) sendCounters(now map[string]uint64) {
	maps.DeleteFunc(s.sent, func(stat string, sent uint64) bool { return now[stat] < sent }) // the rule was absent
	var stats, lines []string
	for stat, n := range now {
		if grown := n - s.sent[stat]; grown > 0 {
			name, tags := s.name(stat)
			stats, lines = append(stats, stat), append(lines, fmt.Sprintf("%s:%d|c%s\n", name, grown, tags))
		}
	}
	for _, stat := range stats[:s.send(lines)] {
		s.sent[stat] = now[stat]
	}
}

func (s *Statsd) sendGauges(now map[string]uint64) {
	var lines []string
	for stat, n := range now {
		name, tags := s.name(stat)
		lines = append(lines, fmt.Sprintf("%s:%d|g%s\n", name, n, tags))
	}
	s.send(lines)
}

// timer returns a function that has the time of a call of a method sent, if there is a connection.
func (s *Statsd) timer(rpc string) func(time.Duration) {
	name, tags := s.name("ratelimit_server." + rpc + ".response_time")
	return func(took time.Duration) {
		if !s.up.Load() {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.times) < maxTimes {
			b := append(append(s.times, name...), ':')
			b = strconv.AppendFloat(b, float64(took.Microseconds())/1000, 'f', 6, 64)
			s.times = append(append(append(b, "|ms"...), tags...), '\n')
		}
	}
}

func (s *Statsd) sendTimes() {
	s.mu.Lock()
	lines := string(s.times)
	s.times = s.times[:0]
	s.mu.Unlock()
	s.send(slices.Collect(strings.Lines(lines)))
}

// name returns the name of a statistic for the server, and the tags after its value.
func (s *Statsd) name(stat string) (name, tags string) {
	var list []string
	for _, tag := range s.cfg.Tags {
		value := strings.NewReplacer(".", "_", ":", "_", "|", "_").Replace(tag.Value)
		if list = append(list, tag.Key+":"+value); !s.cfg.Dog {
			stat += ".__" + tag.Key + "=" + value
		}
	}
	for i := range s.cfg.Mogrifiers {
		if mogrified, more, ok := s.cfg.Mogrifiers[i].mogrify(stat); ok {
			stat, list = mogrified, append(list, more...)
			break
		}
	}
	if !s.cfg.Dog || len(list) == 0 {
		return stat, ""
	}
	return stat, "|#" + strings.Join(list, ",")
}

// connect connects, also if the server has closed the connection: a write would succeed once more, and be lost.
func (s *Statsd) connect(ctx context.Context) {
	if s.conn != nil {
		err := s.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		for some := make([]byte, 512); err == nil; { // a statsd server sends nothing
			_, err = s.conn.Read(some)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		s.lost(err)
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, s.cfg.Network, s.cfg.Address)
	if err == nil {
		s.conn = conn
		s.up.Store(true)
	} else if ctx.Err() == nil {
		s.lost(err)
	}
}

// send sends lines in datagrams, and returns how many. If a datagram fails, it sends no more, and drops the connection.
func (s *Statsd) send(lines []string) (sent int) {
	var datagram []byte
	for i, line := range lines {
		if s.conn == nil {
			break
		}
		datagram = append(datagram, line...)
		if i+1 < len(lines) && len(datagram)+len(lines[i+1]) <= maxDatagram {
			continue
		}
		err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if err == nil {
			_, err = s.conn.Write(datagram)
		}
		if err != nil {
			s.lost(err)
			break
		}
		datagram, sent = datagram[:0], i+1
	}
	return sent
}

func (s *Statsd) close() {
	s.up.Store(false)
	if s.conn != nil {
		_ = s.conn.Close() // nothing is left to do about an error
		s.conn = nil
	}
}

// lost drops the connection and logs it, without the address, which may be a misplaced secret.
func (s *Statsd) lost(err error) {
	s.close()
	if !s.logged.IsZero() && time.Since(s.logged) < lossLogged {
		return
	}
	s.logged = time.Now()
	reason := "no answer"
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		reason = number.Error()
	} else if _, ok := errors.AsType[*net.DNSError](err); ok {
		reason = "the host has no address"
	} else if errors.Is(err, io.EOF) {
		reason = "it has closed the connection"
	}
	s.cfg.Log.Log(context.Background(), s.cfg.Level, "the statsd server cannot be reached; statistics are sent once it "+
		"can (logged once an hour; set STATSD_HOST and STATSD_PORT, or USE_STATSD=false)", "network", s.cfg.Network,
		"reason", reason)
}

// Mogrifier gives statistics a name and tags for DogStatsD, in which $1 stands for the first group of the pattern.
type Mogrifier struct {
	Pattern *regexp.Regexp
	Name    string
	// Tags are sent in their order.
	Tags []Tag
}

var groupNumber = regexp.MustCompile(`\$\d+`)

// mogrify returns the name and tags of a statistic. ok is false if the pattern does not match.
func (m *Mogrifier) mogrify(stat string) (name string, tags []string, ok bool) {
	groups := m.Pattern.FindStringSubmatch(stat)
	if groups == nil {
		return "", nil, false
	}
	fill := func(template string) string {
		return groupNumber.ReplaceAllStringFunc(template, func(group string) string {
			if i, err := strconv.Atoi(group[1:]); err == nil && i < len(groups) {
				return groups[i]
			}
			return group
		})
	}
	for _, tag := range m.Tags {
		value := strings.ReplaceAll(fill(tag.Value), ",", "_") // a comma ends a tag, and a client's value can have one
		tags = append(tags, tag.Key+":"+value)
	}
	return fill(m.Name), tags, true
}
