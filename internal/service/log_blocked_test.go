package service

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestBlockedStderr sends requests while stderr is a pipe that is full and not read. All of them are answered. When the
// pipe is read again, the log has each request, or counts it in a line about those that were left out.
func TestBlockedStderr(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		defer write.Close()
		done <- Run(ctx, Config{Stderr: write, Settings: configured(func(s *settings.Settings) {
			s.Rules.Root = testenv.RulesRoot(t)
			s.Telemetry.LogLevel = settings.LogLevel(slog.LevelDebug)
			s.Telemetry.LogClientValues = true
		})})
	}()
	log := bufio.NewReader(read)
	var addresses []string
	for addresses == nil {
		line, err := log.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		addresses = serving.FindStringSubmatch(line)
	}
	requests, descriptor := 0, `{"entries":[{"key":"other","value":"`+strings.Repeat("v", 200)+`"}]},`
	message := `{"domain":"sample","descriptors":[` + strings.TrimSuffix(strings.Repeat(descriptor, 10), ",") + `]}`
	send := func() {
		t.Helper()
		requests++
		response, err := http.Post("http://"+addresses[2]+"/json", "application/json", strings.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body) // else the connection could not be used again
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("request %d: %s", requests, response.Status)
		}
	}
	metric := func() float64 { return testenv.Metric(t, "http://"+addresses[3], "extauthz_log_left_out_total") }
	for metric() < 100 {
		for range 100 {
			send()
		}
	}

	rest := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(log)
		rest <- string(text)
	}()
	for before := metric(); ; before = metric() {
		if send(); metric() == before {
			break // the log takes records again
		}
	}
	said := metric()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	text, leftOut := <-rest, 0
	line := regexp.MustCompile(`level=ERROR msg="log records were left out because stderr was blocked" left_out=(\d+)\n`)
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1]) // the pattern has digits only
		leftOut += n
	}
	if n := strings.Count(text, "msg=decided "); n+leftOut != requests || leftOut == 0 || float64(leftOut) != said {
		t.Errorf("%d lines and %d left out (metric: %v) of %d requests", n, leftOut, said, requests)
	}
}

// TestEndWithBlockedStderr starts the program with a full pipe as stderr that is never read. It serves and ends, and
// ends with exit code 1 if the rules have mistakes.
func TestEndWithBlockedStderr(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	_ = write.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // a pipe has deadlines
	if _, err := io.Copy(write, bytes.NewReader(make([]byte, 1<<20))); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the pipe is not full: %v", err)
	}
	run := func(rules string, serves func(socket string)) (code int) {
		t.Helper()
		socket := filepath.Join(t.TempDir(), "s")
		cmd := exec.Command(program)
		cmd.Stderr = write
		cmd.Env = variables(configured(func(s *settings.Settings) {
			s.Rules.Root = testenv.RulesRootWith(t, rules)
			s.Listeners.GRPCUDS = socket
		}))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		if serves != nil {
			serves(socket)
			_ = cmd.Process.Signal(syscall.SIGTERM) // an error shows in the exit code
		}
		_ = cmd.Wait()
		return cmd.ProcessState.ExitCode()
	}
	if code := run("domain: [\n", nil); code != exitFailed {
		t.Errorf("with a mistake in the rules: exit code %d, want %d", code, exitFailed)
	}
	code := run("domain: d\n", func(socket string) {
		testenv.Eventually(t, func() error {
			conn, err := net.Dial("unix", socket)
			if err == nil {
				_ = conn.Close()
			}
			return err
		}, "the service")
	})
	if code != exitOK {
		t.Errorf("after SIGTERM: exit code %d, want %d", code, exitOK)
	}
}

// blocking is a writer that blocks until it gets a token.
type blocking struct {
	bytes.Buffer
	tokens chan struct{}
}

func (b *blocking) Write(p []byte) (int, error) {
	<-b.tokens
	return b.Buffer.Write(p)
}

// TestLogQueue fills the queue before a writer that blocks. Records stay in order, and the line with the number of
// those that were left out stands in their place, in the format of the log. No goroutine stays.
func TestLogQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &blocking{tokens: make(chan struct{})}
		s := settings.Telemetry{LogFormat: "json", LogLevel: settings.LogLevel(slog.LevelError)}
		q := newLogQueue(Config{Settings: &settings.Settings{Telemetry: s}, Stderr: out})
		write := func(name string, size int) {
			if n, err := q.Write([]byte(name + strings.Repeat(" ", size-len(name)-1) + "\n")); n != size || err != nil {
				t.Errorf("%s: wrote %d bytes, %v", name, n, err)
			}
			synctest.Wait()
		}
		write("a", 10)           // is being written
		write("b", 2*maxWaiting) // nothing else waits
		write("c", 10)
		write("d", 10)
		out.tokens <- struct{}{}
		out.tokens <- struct{}{}
		synctest.Wait() // b is written, and the number of the others waits for the writer
		write("e", maxWaiting-10)
		write("f", 11)
		write("g", 10) // it would fit, but f would be missing before it
		if q.close() {
			t.Error("close returned true although the writer blocks")
		}
		close(out.tokens)
		<-q.ended
		words := regexp.MustCompile(`"left_out":\d+|\b[a-g]\b`).FindAllString(out.String(), -1)
		const want = `a b "left_out":2 e "left_out":2`
		if got := strings.Join(words, " "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
