package service

import (
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/rules"
)

// newLogger returns a logger that writes to cfg.Stderr, with LOG_FORMAT and LOG_LEVEL.
func newLogger(cfg Config) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.Level(cfg.Settings.Telemetry.LogLevel)}
	switch {
	case cfg.Settings.Telemetry.LogFormat == "json":
		o.ReplaceAttr = inJSON
		return slog.New(slog.NewJSONHandler(cfg.Stderr, o))
	case cfg.Terminal:
		return slog.New(slog.NewTextHandler(terminal{cfg.Stderr}, o))
	}
	o.ReplaceAttr = inLines
	return slog.New(slog.NewTextHandler(cfg.Stderr, o))
}

// inJSON gives the time and the message of a record the names that they have in the JSON of envoyproxy/ratelimit,
// because log pipelines read them. Mistakes are objects, as extauthz check -o json prints them.
func inJSON(groups []string, a slog.Attr) slog.Attr {
	switch problems := problemsOf(a); {
	case problems != nil:
		a.Value = slog.AnyValue([]strictyaml.Problem(problems))
	case len(groups) > 0:
	case a.Key == slog.TimeKey:
		a.Key = "@timestamp"
	case a.Key == slog.MessageKey:
		a.Key = "@message"
	}
	return a
}

// inLines makes each mistake an attribute of one line: problems.0, problems.1.
func inLines(_ []string, a slog.Attr) slog.Attr {
	var lines []slog.Attr
	for i, p := range problemsOf(a) {
		lines = append(lines, slog.String(strconv.Itoa(i), p.OneLine()))
	}
	if lines != nil {
		a.Value = slog.GroupValue(lines...)
	}
	return a
}

// maxListed is how many mistakes or names a record has, because container runtimes cut long lines.
const maxListed = 10

// problemsOf returns the first mistakes of an attribute, nil if it has none.
func problemsOf(a slog.Attr) (problems rules.Problems) {
	if a.Value.Kind() == slog.KindAny { // for other kinds, Any allocates
		problems, _ = a.Value.Any().(rules.Problems)
	}
	return problems[:min(len(problems), maxListed)]
}

// terminal writes an attribute of several lines, such as the mistakes of a rule file, as a block below its log line.
// Without a terminal a record stays one line, because programs read it. A handler calls Write once for each record.
type terminal struct{ io.Writer }

// severalLines is an attribute whose text has several lines.
var severalLines = regexp.MustCompile(` \w+=("(?:[^"\\]|\\.)*\\n(?:[^"\\]|\\.)*")`)

// Write implements io.Writer.
func (t terminal) Write(record []byte) (int, error) {
	block := ""
	line := severalLines.ReplaceAllStringFunc(string(record), func(attr string) string {
		text, err := strconv.Unquote(attr[strings.Index(attr, "=")+1:])
		if err != nil {
			return attr
		}
		block += suggest.Visible(strings.TrimRight(text, "\n")) + "\n"
		return ""
	})
	_, err := io.WriteString(t.Writer, line+block)
	return len(record), err
}

// logInterval is how often the log repeats a line that requests can cause.
const logInterval = time.Minute

// logLimiter allows a line once in logInterval for each of few keys. It is ready to use, and safe for concurrent use.
type logLimiter struct{ last sync.Map } // string -> time.Time

// allow reports whether to log the line of key now.
func (l *logLimiter) allow(key string) bool {
	now := time.Now()
	last, logged := l.last.LoadOrStore(key, now)
	return !logged || now.Sub(last.(time.Time)) >= logInterval && l.last.CompareAndSwap(key, last, now)
}

// ErrBlocked is the error of Run in place of one that cannot be printed, because stderr is blocked.
var ErrBlocked = errors.New("stderr is blocked")

const (
	maxWaiting  = 1 << 20         // bytes of records in a logQueue; as many are being written
	logPatience = 3 * time.Second // how long the end of the service waits for stderr
)

// logQueue writes records to stderr in the background, so that no request waits while stderr is blocked: a full pipe
// that is not read. It leaves out records that do not fit. Their number stands before the next record. Use newLogQueue.
type logQueue struct {
	cfg     Config // with stderr
	leftOut atomic.Uint64
	ended   chan struct{}
	more    sync.Cond // waiting or closed has changed

	mu      sync.Mutex
	waiting []byte
	missing uint64 // records that were left out since waiting was full
	closed  bool
}

func newLogQueue(cfg Config) *logQueue {
	q := &logQueue{cfg: cfg, ended: make(chan struct{})}
	q.more.L = &q.mu
	go q.run()
	return q
}

// Write implements io.Writer for one record. It does not wait for stderr.
func (q *logQueue) Write(record []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.missing > 0 || len(q.waiting) > 0 && len(q.waiting)+len(record) > maxWaiting {
		q.missing++
		q.leftOut.Add(1)
		return len(record), nil
	}
	q.waiting = append(q.waiting, record...)
	q.more.Signal()
	return len(record), nil
}

// run writes records until the queue is closed and empty.
func (q *logQueue) run() {
	defer close(q.ended)
	var writing []byte
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed || len(q.waiting) > 0 {
		if len(q.waiting) == 0 {
			q.more.Wait()
			continue
		}
		missing := q.missing
		writing, q.waiting, q.missing = q.waiting, writing[:0], 0
		q.mu.Unlock()
		_, _ = q.cfg.Stderr.Write(writing) // an error of the log has no other place
		if missing > 0 {
			newLogger(q.cfg).Error("log records were left out because stderr was blocked", "left_out", missing)
		}
		q.mu.Lock()
	}
}

// close waits until all records are written. It returns false if stderr stays blocked.
func (q *logQueue) close() bool {
	q.mu.Lock()
	q.closed = true
	q.more.Signal()
	q.mu.Unlock()
	select {
	case <-q.ended:
		return true
	case <-time.After(logPatience):
		return false
	}
}
