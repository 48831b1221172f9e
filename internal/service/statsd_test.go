package service

import (
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/telemetry"
	"github.com/extauthz/extauthz/test/testenv"
)

// statsdServer listens for statistics on an address until the test ends. It returns its port, and what it has received.
func statsdServer(t *testing.T, network, address string) (port string, out *testenv.Output) {
	t.Helper()
	out = new(testenv.Output)
	if network == "udp" {
		conn, err := net.ListenPacket("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		go func() {
			datagram := make([]byte, 1<<16)
			for {
				n, _, err := conn.ReadFrom(datagram)
				if err != nil {
					return
				}
				_, _ = out.Write(datagram[:n])
			}
		}()
		_, port, _ = net.SplitHostPort(conn.LocalAddr().String())
		return port, out
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(out, conn) }()
		}
	}()
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return port, out
}

var (
	counterLine = regexp.MustCompile(`^([^:\n]+):(\d+)\|c(\|#[^|\n]*)?(\|c:[^|\n]*)?$`) // the last is the container
	timerLine   = regexp.MustCompile(`^([^:\n]+):\d+\.\d{6}\|ms(\|#[^|\n]*)?(\|c:[^|\n]*)?$`)
)

// received returns the sums of counters and the numbers of times, by name and tags. It returns an error for another
// line. The last line may still be on its way.
func received(out *testenv.Output) (map[string]int, error) {
	sums := make(map[string]int)
	for line := range strings.Lines(out.String()) {
		line, ended := strings.CutSuffix(line, "\n")
		if !ended {
			break
		}
		if m := counterLine.FindStringSubmatch(line); m != nil {
			n, err := strconv.Atoi(m[2])
			if err != nil {
				return nil, err
			}
			sums[m[1]+m[3]] += n
		} else if m := timerLine.FindStringSubmatch(line); m != nil {
			sums[m[1]+m[2]+" times"]++
		} else {
			return nil, fmt.Errorf("the line %q", line)
		}
	}
	return sums, nil
}

// waitFor waits until the server has received these sums and times.
func waitFor(t *testing.T, out *testenv.Output, want map[string]int) {
	t.Helper()
	testenv.Eventually(t, func() error {
		got, err := received(out)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			return errors.Join(err, fmt.Errorf("(-want +got)\n%s", diff))
		}
		return nil
	}, "the statistics")
}

// sent returns what statisticsRequests add to statistics. name makes the name of those of rules.
func sent(name func(rule, stat string) string, suffix string) map[string]int {
	want := map[string]int{
		"ratelimit.service.config_load_success" + suffix:                     1,
		"ratelimit.service.call.should_rate_limit.service_error" + suffix:    1,
		"ratelimit_server.ShouldRateLimit.total_requests" + suffix:           11,
		"ratelimit_server.ShouldRateLimit.response_time" + suffix + " times": 11,
		name("database_users", "total_hits"):                                 4,
		name("database_users", "within_limit"):                               2,
		name("database_users", "over_limit"):                                 1,
		name("database_users", "near_limit"):                                 2,
		name("database", "total_hits"):                                       4,
		name("database", "within_limit"):                                     1,
		name("database", "over_limit"):                                       3,
		name("database", "shadow_mode"):                                      3,
		name("database", "near_limit"):                                       1,
		name("path_/v1/*.method.user_alice", "total_hits"):                   10,
		name("path_/v1/*.method.user_alice", "within_limit"):                 10,
		name("path_/v1/*.method.user_alice", "near_limit"):                   1,
	}
	for _, address := range []string{"192_0_2_1", "192_0_2_2"} {
		want[name("remote_address_"+address, "total_hits")] = 1
		want[name("remote_address_"+address, "within_limit")] = 1
	}
	return want
}

// TestStatsd checks what a statsd server receives by TCP and UDP, and a DogStatsD server.
func TestStatsd(t *testing.T) {
	t.Parallel()
	plain := func(suffix string) map[string]int {
		return sent(func(rule, stat string) string {
			return "ratelimit.service.rate_limit.shop." + rule + "." + stat + suffix
		}, suffix)
	}
	dog := sent(func(rule, stat string) string {
		return "ratelimit.rule." + stat + "|#stage:test,descriptor:" + rule + ",domain:shop"
	}, "|#stage:test")
	dog["ratelimit_server.ShouldRateLimit.response_time|#stage:test times"] = 11
	for _, c := range []struct {
		name, network string
		change        func(*settings.Settings)
		want          map[string]int
	}{
		{"tcp", "tcp", func(s *settings.Settings) {
			s.Telemetry.UseStatsd = true
		}, plain("")},
		{"udp with tags", "udp", func(s *settings.Settings) {
			s.Telemetry.StatsdProtocol = "udp"
			s.Telemetry.ExtraTags = settings.Tags{{Key: "cluster", Value: "east"}, {Key: "stage", Value: "v1.2"}}
		},
			plain(".__cluster=east.__stage=v1_2")},
		{"DogStatsD", "udp", func(s *settings.Settings) {
			s.Telemetry.UseStatsd, s.Telemetry.UseDogStatsd = false, true
			s.Telemetry.ExtraTags = settings.Tags{{Key: "stage", Value: "test"}}
			s.Telemetry.Mogrifiers = []telemetry.Mogrifier{
				{
					Pattern: regexp.MustCompile(`^ratelimit\.service\.rate_limit\.([^.]+)\.(.*)\.([^.]+)$`),
					Name:    "ratelimit.rule.$3",
					Tags:    settings.Tags{{Key: "descriptor", Value: "$2"}, {Key: "domain", Value: "$1"}},
				},
				{Pattern: regexp.MustCompile("^nothing$"), Name: "$1"},
			}
		}, dog},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			port, out := statsdServer(t, c.network, "127.0.0.1:0")
			env := configured(func(s *settings.Settings) {
				s.Rules.Root = testenv.RulesRootWith(t, statisticsRules)
				s.Telemetry.StatsdHost = "127.0.0.1"
				s.Telemetry.StatsdPort = portOf(t, port)
				s.Telemetry.StatsdChosen = true
				s.Telemetry.FlushInterval = 20 * time.Millisecond
			}, c.change)
			grpcAddr, _, _, log := start(t, env)
			// Times of calls before the connection are not kept.
			testenv.Eventually(t, matches(out, regexp.MustCompile("config_load_success")), "a connection to the statsd server")
			send(t, grpcAddr, statisticsRequests)
			waitFor(t, out, c.want)
			if strings.Contains(log.String(), "statsd") {
				t.Errorf("the log has\n%s", log)
			}
		})
	}
}

// TestStatsdOutage starts the server after the requests: they are decided at once, the log has one line, and nothing is
// lost of the counters.
func TestStatsdOutage(t *testing.T) {
	t.Parallel()
	port := testenv.FreePort(t)
	grpcAddr, _, _, log := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRootWith(t, statisticsRules)
		s.Telemetry.StatsdHost = "127.0.0.1"
		s.Telemetry.StatsdChosen = true
		s.Telemetry.StatsdPort = uint16(port)
		s.Telemetry.StatsdChosen = true
		s.Telemetry.FlushInterval = 20 * time.Millisecond
	}))
	testenv.Eventually(t, matches(log, regexp.MustCompile(
		`level=WARN msg="the statsd server cannot be reached.*reason="connection refused"`)), "a line about the server")
	send(t, grpcAddr, statisticsRequests)
	want := sent(func(rule, stat string) string { return "ratelimit.service.rate_limit.shop." + rule + "." + stat }, "")
	delete(want, "ratelimit_server.ShouldRateLimit.response_time times") // times are not kept
	_, out := statsdServer(t, "tcp", testenv.Loopback(port))
	waitFor(t, out, want)
	if n := strings.Count(log.String(), "statsd"); n != 1 {
		t.Errorf("%d lines:\n%s", n, log)
	}
}

// TestStatsdRestart restarts the server, with the requests in between: nothing is lost of the counters.
func TestStatsdRestart(t *testing.T) {
	t.Parallel()
	port := testenv.FreePort(t)
	listener, err := net.Listen("tcp", testenv.Loopback(port))
	if err != nil {
		t.Fatal(err)
	}
	grpcAddr, _, _, log := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRootWith(t, statisticsRules)
		s.Telemetry.StatsdHost = "127.0.0.1"
		s.Telemetry.StatsdChosen = true
		s.Telemetry.StatsdPort = uint16(port)
		s.Telemetry.StatsdChosen = true
		s.Telemetry.FlushInterval = 20 * time.Millisecond
	}))
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	const first = "ratelimit.service.config_load_success"
	line := make([]byte, len(first+":1|c\n"))
	if _, err := io.ReadFull(conn, line); err != nil || !strings.HasPrefix(string(line), first) {
		t.Fatalf("%v after %q", err, line)
	}
	if err := errors.Join(listener.Close(), conn.Close()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, matches(log, regexp.MustCompile(
		`the statsd server cannot be reached.*reason="it has closed the connection"`)), "a line about the server")
	send(t, grpcAddr, statisticsRequests)
	want := sent(func(rule, stat string) string { return "ratelimit.service.rate_limit.shop." + rule + "." + stat }, "")
	delete(want, "ratelimit_server.ShouldRateLimit.response_time times") // times are not kept
	delete(want, first)
	_, out := statsdServer(t, "tcp", listener.Addr().String())
	waitFor(t, out, want)
}

// TestStatsdHost has a host that does not exist. Its name is not logged, because it may be a misplaced secret.
func TestStatsdHost(t *testing.T) {
	t.Parallel()
	grpcAddr, _, debugAddr, log := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRootWith(t, statisticsRules)
		s.Telemetry.StatsdHost = "no-such-host.invalid"
		s.Telemetry.StatsdChosen = true
		s.Telemetry.FlushInterval = 20 * time.Millisecond
	}))
	send(t, grpcAddr, statisticsRequests)
	testenv.Eventually(t, matches(log, regexp.MustCompile("the statsd server cannot be reached")), "a line about the host")
	_, body := get(t, "http://"+debugAddr+"/metrics")
	if want := `ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 11`; !strings.Contains(body, want) {
		t.Errorf("no %s", want)
	}
	if strings.Contains(log.String(), "no-such-host") {
		t.Errorf("the log has the host:\n%s", log)
	}
}
