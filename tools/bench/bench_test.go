package main

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/tools/bench/figures"
)

// TestScripts checks that each script that is called directly decides, and how many takes a call has.
func TestScripts(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	for i, r := range scripts(redis.Addr).rows {
		want := 1.0
		if i > 0 {
			want = 1.0 / takesInCall
		}
		s, err := r.measure(t.Context(), 500*time.Millisecond) // many calls, also on a busy machine
		if err != nil || s.perSecond <= 0 || s.redisCPU <= 0 || s.scripts < 0.99*want || s.scripts > 1.01*want {
			t.Errorf("%s: %+v, %v, want %v script calls for each request", r.name, s, err, want)
		}
	}
	if _, err := direct(testenv.Loopback(testenv.FreePort(t)), rawCalls())(t.Context(), time.Second); err == nil {
		t.Error("no error without Redis")
	}
}

// TestDelayed calls Redis through a network whose round trip takes a millisecond.
func TestDelayed(t *testing.T) {
	t.Parallel()
	const roundTrip = time.Millisecond
	far, err := delayed(t.Context(), testenv.Redis(t).Addr, roundTrip)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", far)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	reply := make([]byte, len("+PONG\r\n"))
	for range 3 {
		sent := time.Now()
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, reply); err != nil || string(reply) != "+PONG\r\n" {
			t.Fatalf("%q, %v, want PONG", reply, err)
		}
		if took := time.Since(sent); took < roundTrip {
			t.Errorf("the reply came after %v, want %v at least", took, roundTrip)
		}
	}
}

// TestContest checks that each row is measured once a round, each time at another position, and the ratios of rounds.
func TestContest(t *testing.T) {
	t.Parallel()
	var order []string
	line := func(name string, perSecond ...float64) *row {
		return &row{name: name, measure: func(context.Context, time.Duration) (sample, error) {
			order = append(order, name)
			s := sample{perSecond: perSecond[0], cpu: 10, redisCPU: 2}
			perSecond = perSecond[1:]
			return s, nil
		}}
	}
	c := &contest{name: "n", title: "t", rows: []*row{
		line("empty", 99, 100, 200, 400), line("ours, native", 99, 150, 100, 800),
		line("ours, native, base", 99, 50, 100, 100), line(figures.Raw, 99, 1, 1, 1),
	}}
	table, err := c.run(t.Context(), options{rounds: 3, each: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	want := "empty ours, native ours, native, base " + figures.Raw + " ours, native ours, native, base"
	if !strings.HasPrefix(strings.Join(order, " "), want) {
		t.Errorf("order %q", order)
	}
	var got []string
	for _, r := range table.Rows {
		got = append(got, cmp.Diff(figures.Row{}, r))
	}
	ours := table.Rows[1]
	if ours.PerSecond != (figures.Spread{Min: 100, Median: 150, Max: 800}) || ours.PerSecondRatio != 1.5 ||
		ours.BaseRate != 3 || ours.BaseCPU != 1 || ours.RedisRatio != 1 || ours.RedisCPURatio != 0 ||
		table.Rows[0].BaseRate != 0 {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// TestGrownRules checks that the service loads the rules of the largest row, which take several files.
func TestGrownRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary, err := testenv.Build(t.TempDir(), "extauthz")
	if err != nil {
		t.Fatal(err)
	}
	if err := writeRules(dir+"/rules", 100_000); err != nil {
		t.Fatal(err)
	}
	s := testenv.Service(t, binary, "RUNTIME_ROOT="+dir, "RUNTIME_APPDIRECTORY=rules", "MERGE_DOMAIN_CONFIG=true")
	p := (&stage{options: options{connections: 2, inFlight: 4}}).plan(testenv.Loopback(s.GRPCPort), limit("rule"))
	p.Keys.Number, p.Count = 100_000, 1000
	got, err := load(p)(t.Context(), time.Minute)
	if err != nil || got.perSecond <= 0 || got.cpu <= 0 || got.memory <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestPeer compares the service with itself as the peer.
func TestPeer(t *testing.T) {
	t.Parallel()
	binary, err := testenv.Build(t.TempDir(), "extauthz")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{options: options{rounds: 1, connections: 2, inFlight: 4, redis: testenv.Redis(t).Addr, peerName: "itself"}}
	t.Cleanup(s.stop)
	if _, err := peerSeries(t.Context(), s); err == nil || !strings.Contains(err.Error(), "-peer host:port") {
		t.Errorf("without a peer: %v", err)
	}
	if err := s.addBuild(t.Context(), "", t.TempDir(), binary); err != nil {
		t.Fatal(err)
	}
	peer, err := s.startService(t.Context(), binary, s.scenes[0].env("REDIS_URL="+s.redis))
	if err != nil {
		t.Fatal(err)
	}
	s.peer, s.peerRedis = peer.address, s.redis
	contests, err := peerSeries(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range contests {
		c.rows = c.rows[:2]
		table, err := c.run(t.Context(), options{rounds: 1, each: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		first, ours := table.Rows[0], table.Rows[1]
		if first.Name != "itself" || first.RedisCPURatio != 1 || ours.RedisCPURatio <= 0 || ours.CPURatio <= 0 {
			t.Errorf("%s: %+v, %+v", c.title, first, ours)
		}
	}
}
