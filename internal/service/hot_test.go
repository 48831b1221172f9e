package service

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

const hotRules = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 5, name: per-user, algorithm: fixed_window}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1, algorithm: fixed_window}}
`

// hotReplicas starts two replicas with one Redis, and returns their debug ports. It sends both requests of ann, who is
// denied, of bob, who is near the limit in the end, and to the rule in shadow.
func hotReplicas(t *testing.T, show bool) (debug [2]string) {
	t.Helper()
	root, redis := testenv.RulesRootWith(t, hotRules), testenv.Redis(t)
	for i := range debug {
		var web string
		_, web, debug[i], _ = start(t, configured(func(s *settings.Settings) {
			s.Rules.Root, s.Redis.Main.URL, s.Telemetry.LogClientValues = root, redis.Addr, show
			s.Redis.Main.Timeout, s.Telemetry.LogLevel = 10*time.Second, settings.LogLevel(0)
		}))
		send := func(n int, key, value string) {
			for range n {
				body := fmt.Sprintf(`{"domain":"shop","descriptors":[{"entries":[{"key":%q,"value":"%s"}]}]}`, key, value)
				res, err := http.Post("http://"+web+"/json", "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
			}
		}
		send(7, "user", `quiz-ann\u001b]0;evil`)
		send(2+i, "user", "quiz-bob")
		send(3, "trial", "quiz-eve")
	}
	return debug
}

// TestTopOfReplicas merges the keys of two replicas. Without LOG_CLIENT_VALUES they are not merged, and no value is
// shown.
func TestTopOfReplicas(t *testing.T) {
	t.Parallel()
	for _, show := range []bool{true, false} {
		t.Run(fmt.Sprint("LOG_CLIENT_VALUES=", show), func(t *testing.T) {
			t.Parallel()
			debug := hotReplicas(t, show)
			var top inspect.Top
			topJSON := runHot(t, "buckets", "top", "--debug", debug[0], "--debug", debug[1], "-o", "json")
			if err := json.Unmarshal([]byte(topJSON), &top); err != nil {
				t.Fatal(err)
			}
			text := runHot(t, "buckets", "top", "--debug", debug[0], "--debug", debug[1])
			shadow := runHot(t, "shadow", "--debug", debug[0], "--debug", debug[1])
			one := runHot(t, "buckets", "top", "--debug", debug[0])
			if !show {
				if len(top.Keys) != 6 || top.ClientValues {
					t.Errorf("%d keys, want 3 of each replica: %s", len(top.Keys), topJSON)
				}
				for _, said := range []string{topJSON, text, shadow, one} {
					if strings.Contains(said, "quiz") {
						t.Errorf("a value is shown: %s", said)
					}
				}
				return
			}
			if len(top.Keys) != 3 || len(top.Keys[0].Replicas) != 2 || top.Every != 1 || top.Keys[0].Rate <= 0 ||
				time.Since(top.Keys[0].DeniedSince) > time.Minute || !top.Keys[0].Reset.After(time.Now()) {
				t.Errorf("the keys are %s", topJSON)
			}
			both := regexp.QuoteMeta(" at " + debug[0] + ", " + debug[1])
			matchLines(t, text, `Rates .*`, `STATE +RULE +LIMIT +USED +REQUESTS/S +DENIED SINCE +DENIALS +KEY`,
				`over +user +per-user +5 of 5 +[\d.]+ ±0\.0 +20\S+Z +9 +user=quiz-ann.]0;evil`+both,
				`over \(shadow\) +trial +trial +1 of 1 +[\d.]+ ±0\.0 +20\S+Z +5 +trial=quiz-eve`+both,
				`near +user +per-user +5 of 5 +[\d.]+ ±0\.0 +- +0 +user=quiz-bob`+both)
			matchLines(t, shadow, `RULE +LIMIT +WOULD BE DENIED +NOW SINCE +KEYS NOW`,
				`trial +trial +5 of 6 \(83\.3 %\) +20\S+Z +1`, ` +5 +20\S+Z +trial=quiz-eve`+both)
			matchLines(t, one, `STATE.*`, `over +user +per-user .* 2 +user=quiz-ann.]0;evil`,
				`over \(shadow\) +trial +.* 2 +trial=quiz-eve`, `hot +user +per-user +2 of 5 .* user=quiz-bob`)
		})
	}
}

// runHot runs a command that must succeed, and returns its stdout.
func runHot(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := runProgram(t, nil, "", args...)
	if code != exitOK || stderr != "" {
		t.Fatalf("extauthz %s: exit code %d: %s", args, code, stderr)
	}
	return stdout
}

// matchLines compares each line of a text with an expression. One for `Rates …` is optional.
func matchLines(t *testing.T, text string, want ...string) {
	t.Helper()
	if want[0] == `Rates .*` && !strings.HasPrefix(text, "Rates") {
		want = want[1:]
	}
	if pattern := `\A` + strings.Join(want, `\n`) + `\n\z`; !regexp.MustCompile(pattern).MatchString(text) {
		t.Errorf("got\n%swant\n%s", text, strings.Join(want, "\n"))
	}
}

// TestTopWithoutAnswer asks for replicas that do not answer, and for a port that is not the debug port.
func TestTopWithoutAnswer(t *testing.T) {
	t.Parallel()
	_, web, debug, _ := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRootWith(t, hotRules)
	}))
	const closed = "127.0.0.1:1"
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"buckets top --debug " + closed, exitFailed, "", "connection refused"},
		{"buckets top --debug " + web, exitFailed, "", "/top: 404 Not Found: want the debug port of a running extauthz"},
		{"buckets top --debug " + closed + " --debug " + debug, exitOK, "STATE", "warning: Get \"http://127.0.0.1:1/top\""},
		{"buckets top -o json --debug " + debug, exitOK, `"keys": []`, ""},
		{"shadow --debug " + debug, exitOK, "trial  0 of 0 (0.0 %)", ""},
		{"buckets top now", exitUsage, "", `takes only flags, not "now"`},
	} {
		code, stdout, stderr := runProgram(t, nil, "", strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
			t.Errorf("extauthz %s: exit code %d, %s%s; want %d, %s%s", c.args, code, stdout, stderr, c.code, c.stdout, c.stderr)
		}
	}
}

// TestTopOnTerminal runs the command on a terminal of 100 columns and 6 lines. It draws the keys in color, cuts lines,
// draws them again, and ends at q, Ctrl-C or SIGTERM. The screen is then as before.
func TestTopOnTerminal(t *testing.T) {
	t.Parallel()
	debug := hotReplicas(t, true)
	for _, c := range []struct {
		name, noColor string
		end           func(screen *os.File, cmd *exec.Cmd) error
	}{
		{"q", "", func(screen *os.File, _ *exec.Cmd) error { _, err := screen.WriteString("xq"); return err }},
		{"Ctrl-C, NO_COLOR", "1", func(screen *os.File, _ *exec.Cmd) error {
			_, err := screen.WriteString("\x03")
			return err
		}},
		{"SIGTERM", "", func(_ *os.File, cmd *exec.Cmd) error { return cmd.Process.Signal(unix.SIGTERM) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			screen, terminal := openTerminal(t)
			cmd := exec.CommandContext(t.Context(), program, "buckets", "top", "--debug", debug[0])
			cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = []string{"NO_COLOR=" + c.noColor}, terminal, terminal, terminal
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = terminal.Close()
			out, read := new(testenv.Output), make(chan struct{})
			go func() { // ends when the command has closed the terminal
				defer close(read)
				_, _ = io.Copy(out, screen)
			}()
			testenv.Eventually(t, func() error {
				if strings.Count(out.String(), "user=quiz-bob") < 2 {
					return fmt.Errorf("the screen shows %q", out)
				}
				return nil
			}, "two frames")
			if err := c.end(screen, cmd); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			<-read
			shown := out.String()
			if got := strings.Contains(shown, "\x1b[31mover "); got != (c.noColor == "") {
				t.Errorf("that it shows colors is %t: %q", got, shown)
			}
			begin, end := "\x1b[?1049h\x1b[?25l\x1b[Hq ends this view.\x1b[K\r\nSTATE", "\x1b[?25h\x1b[?1049l"
			if !strings.HasPrefix(shown, begin) || !strings.HasSuffix(shown, end) || strings.Contains(shown, "\x1b]0;") {
				t.Errorf("the screen is %q", shown)
			}
			frame := strings.Split(strings.Split(shown, "\x1b[H")[1], "\r\n")
			for _, line := range frame {
				if n := len([]rune(regexp.MustCompile(`\x1b\[[0-9]*[mKJ]`).ReplaceAllString(line, ""))); n > 100 {
					t.Errorf("a line has %d columns: %q", n, line)
				}
			}
			if len(frame) != 5 { // the line for q, the header and three keys
				t.Errorf("a frame has %d lines: %q", len(frame), frame)
			}
		})
	}
}

// openTerminal returns a terminal of 100 columns and 6 lines, and its screen and keyboard.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	fd := int(screen.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: 100, Row: 6}); err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return screen, terminal
}
