package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/tools/bench/figures"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == emptyServer { // a series runs the program that it belongs to
		serveEmpty(os.Args[2])
		return
	}
	os.Exit(m.Run())
}

// TestSeries measures for a moment what `make bench` measures. On a busy machine, a row may have no answer in it.
func TestSeries(t *testing.T) {
	redis := testenv.Redis(t).Addr
	t.Chdir("../..") // as make does
	o := options{rounds: 1, each: 20 * time.Millisecond, inFlight: 2, connections: 1, redis: redis}
	for name := range strings.SplitSeq("main,envoy,low", ",") {
		i := slices.IndexFunc(allSeries, func(s series) bool { return s.name == name })
		got, err := allSeries[i].measure(t.Context(), o)
		if err != nil || len(got.Tables) == 0 {
			t.Fatalf("%s: %d tables, %v", name, len(got.Tables), err)
		}
		answered := 0
		for _, table := range got.Tables {
			for _, row := range table.Rows {
				if row.PerSecond.Median > 0 {
					answered++
				}
			}
		}
		if answered == 0 {
			t.Errorf("%s: no row has answers: %+v", name, got.Tables)
		}
	}
}

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
		line("empty", 99, 100, 200, 400), line("ours", 99, 150, 100, 800),
		line("ours, base", 99, 50, 100, 100), line(figures.Raw, 99, 1, 1, 1),
	}}
	table, err := c.run(t.Context(), options{rounds: 3, each: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	want := "empty ours ours, base " + figures.Raw + " ours ours, base"
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
