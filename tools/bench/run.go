package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/tools/bench/figures"
)

// series is a part of what can be measured. Its function starts the servers and returns the contests.
type series struct {
	name     string
	contests func(context.Context, *stage) ([]*contest, error)
}

var allSeries = []series{
	{"main", mainSeries}, {"envoy", envoySeries}, {"low", lowSeries}, {"growth", growthSeries}, {"peer", peerSeries},
}

func seriesNames() string {
	var names []string
	for _, s := range allSeries {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}

// run measures the wanted series, prints their tables, and writes them if that is wanted.
func run(ctx context.Context, o options) error {
	report, err := figures.Latest()
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(o.series, ",") {
		i := slices.IndexFunc(allSeries, func(s series) bool { return s.name == name })
		if i < 0 {
			return fmt.Errorf("-series %q: want %s", name, seriesNames())
		}
		s, err := allSeries[i].measure(ctx, o)
		if err != nil {
			return fmt.Errorf("series %s: %w", name, err)
		}
		fmt.Println(s.Markdown())
		report.Put(s)
	}
	if o.write {
		return write(report)
	}
	return nil
}

// measure measures one series. Its servers run only until it ends.
func (all series) measure(ctx context.Context, o options) (s figures.Series, err error) {
	dir, err := os.MkdirTemp("", "extauthz-bench")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(dir)
	stage := &stage{options: o, dir: dir}
	defer stage.stop()
	if err := stage.start(ctx); err != nil {
		return s, err
	}
	contests, err := all.contests(ctx, stage)
	if err != nil {
		return s, err
	}
	s = figures.Series{
		Name: all.name, Machine: machine(), Versions: stage.versions(ctx),
		Load: fmt.Sprintf("%d rounds of %s, %d requests in flight over %d connections unless a row has other numbers. The "+
			"load, the servers and Redis share the machine", o.rounds, o.each, o.inFlight, o.connections),
	}
	for _, c := range contests {
		t, err := c.run(ctx, o)
		if err != nil {
			return s, fmt.Errorf("%s: %w", c.title, err)
		}
		s.Tables = append(s.Tables, t)
	}
	return s, nil
}

// write writes the report and the page that shows it.
func write(r figures.Report) error {
	page, err := os.ReadFile(figures.Page)
	if err != nil {
		return fmt.Errorf("run this in the root of the repository: %w", err)
	}
	text, err := r.Into(string(page))
	if err != nil {
		return err
	}
	if err := os.WriteFile(figures.Page, []byte(text), 0o644); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(figures.File, append(data, '\n'), 0o644)
}

// machine returns the processor and the number of cores.
func machine() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // only Linux has it
	model := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindStringSubmatch(string(text))
	if model == nil {
		return fmt.Sprintf("%d cores", runtime.NumCPU())
	}
	return fmt.Sprintf("%d cores of %s", runtime.NumCPU(), strings.TrimSpace(model[1]))
}

// versions returns those of the measured programs, and the day.
func (s *stage) versions(ctx context.Context) string {
	parts := []string{runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH}
	for _, command := range [][]string{{s.scenes[0].binary, "version"}, {"redis-server", "--version"}} {
		out, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
		if err != nil { // Redis may run elsewhere
			continue
		}
		line, _, _ := strings.Cut(string(out), "\n")
		line, _, _ = strings.Cut(strings.Replace(line, "Redis server v=", "Redis ", 1), " sha=")
		parts = append(parts, line)
	}
	return strings.Join(append(parts, time.Now().UTC().Format(time.DateOnly)), ", ")
}
