package redisstore_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// lines are what was written. Several goroutines may write.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestLog checks that the lines of the client library are records of the log, at debug.
func TestLog(t *testing.T) { //nolint:paralleltest // the library has one log
	server := testenv.Redis(t)
	server.Kill()
	written := new(lines)
	redisstore.Log(slog.New(slog.NewJSONHandler(written, &slog.HandlerOptions{Level: slog.LevelDebug})))
	t.Cleanup(func() { redisstore.Log(slog.New(slog.DiscardHandler)) })
	if err := open(t, redisstore.Config{URL: server.Addr}).Ping(t.Context()); err == nil {
		t.Fatal("an answer of a killed Redis")
	}
	for _, want := range []string{`"level":"DEBUG","msg":"Redis client"`, "failed to dial", server.Addr} {
		if !strings.Contains(written.String(), want) {
			t.Errorf("no %s in the log: %s", want, written)
		}
	}
}
