package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// deployment is what the commands of a page ask: the service, Envoy, and an application behind it. A nil one has not
// been started.
type deployment struct {
	envoy   *proxy
	service *service
	// pages and tests are the addresses as pages write them, localhost:10000, and as the test has them.
	pages, tests *strings.Replacer
}

func deploy(t *testing.T, dir, config string, settings []string) *deployment {
	t.Helper()
	service := startServiceIn(t, dir, settings...)
	// A test machine can be slower than a page expects, and Envoy does not wait for what is late.
	config = shortTimeout.ReplaceAllString(config, "${1}timeout: "+longTimeout)
	// Envoy runs in another directory than the shell of the page.
	config = strings.ReplaceAll(config, "path: access.log", "path: "+filepath.Join(dir, "access.log"))
	envoy := testenv.Envoy(t, config, testenv.Ports{10000: 0, 8000: testenv.Port(t, standIn(t)), 8081: service.grpcPort})
	d := &deployment{envoy: &proxy{EnvoyProxy: envoy, addr: envoy.Listener("ingress")}, service: service}
	addresses := []string{
		"localhost:10000", d.envoy.addr,
		"localhost:9901", envoy.Admin,
		"localhost:8080", strings.TrimPrefix(service.http, "http://"),
		"localhost:6070", strings.TrimPrefix(service.debug, "http://"),
	}
	d.tests = strings.NewReplacer(addresses...)
	for i := 0; i < len(addresses); i += 2 {
		addresses[i], addresses[i+1] = addresses[i+1], addresses[i]
	}
	d.pages = strings.NewReplacer(addresses...)
	return d
}

// asInTest returns a command of a page with the addresses of the test. It waits until Envoy has ended the requests of
// the previous command: with apply_on_stream_done, Envoy charges a request after the client has the response.
func (d *deployment) asInTest(t *testing.T, command string) string {
	t.Helper()
	if d == nil {
		return command
	}
	testenv.Eventually(t, func() error {
		for _, gauge := range []string{"http.ingress.downstream_rq_active", "cluster.extauthz.upstream_rq_active"} {
			if n := d.envoy.Stat(gauge); n != 0 {
				return fmt.Errorf("%s is %d", gauge, n)
			}
		}
		return nil
	}, "Envoy to end its requests")
	return d.tests.Replace(command)
}

// asOnPage returns what a command printed with the addresses of the pages.
func (d *deployment) asOnPage(output string) string {
	if d == nil {
		return output
	}
	return d.pages.Replace(output)
}

// terminal is a shell in which the commands of a page are typed.
type terminal struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

// newTerminal starts a shell in a directory that finds the service as extauthz. It ends with the test.
func newTerminal(t *testing.T, dir string, environment ...string) *terminal {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // only a failing test uses it up
	cmd := exec.CommandContext(ctx, "bash", "--norc", "--noprofile")
	cmd.Dir = dir
	path := filepath.Dir(binary) + ":" + os.Getenv("PATH")
	cmd.Env = append([]string{"PATH=" + path, "HOME=" + dir, "LC_ALL=C.UTF-8"}, environment...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // and what it waits for
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // the last command may have failed, which a page shows
		cancel()
	})
	return &terminal{t: t, in: in, out: bufio.NewReader(out)}
}

// run types a command and returns what it prints, to stdout and stderr, without white space at the ends of lines.
func (s *terminal) run(command string) string {
	s.t.Helper()
	const end = "== the end of the command =="
	if _, err := fmt.Fprintf(s.in, "{ %s\n} </dev/null\nprintf '\\n%%s\\n' '%s'\n", command, end); err != nil {
		s.t.Fatalf("$ %s: %v", command, err)
	}
	var printed strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("$ %s: %v after\n%s", command, err, printed.String()+line)
		}
		if line == end+"\n" {
			break
		}
		printed.WriteString(strings.TrimRight(line, " \r\n") + "\n")
	}
	return printed.String()
}

// environment returns the variables of the shell, for the service. API_KEYS_FILE is not among them if there is no such
// file.
func (s *terminal) environment() []string {
	s.t.Helper()
	return strings.Split(strings.TrimSpace(s.run(`[ -e "$API_KEYS_FILE" ] || unset API_KEYS_FILE; env`)), "\n")
}

// standIn starts the application of the pages: `extauthz echo`.
func standIn(t *testing.T) (addr string) {
	t.Helper()
	addr = testenv.Loopback(testenv.FreePort(t))
	cmd := exec.Command(binary, "echo")
	cmd.Env = []string{"ECHO_ADDRESS=" + addr}
	testenv.Start(t, cmd, func() error {
		resp, err := http.Get("http://" + addr + "/healthz")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
	return addr
}
