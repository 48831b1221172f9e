package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rulefile"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// ruleSource loads the rules, follows their files, and knows what is in force.
type ruleSource struct {
	// sample says that nothing is configured and the built-in rules are served.
	sample bool
	// apply puts rules in force; onLoad is called after that.
	apply  func(*ratelimit.Rules, map[string]*authz.Policy)
	onLoad func()

	dir     string
	cfg     rulefile.Config
	options ratelimit.RulesOptions
	log     *slog.Logger
	first   rulefile.Rules

	mu       sync.Mutex
	inForce  rulefile.Rules
	since    time.Time
	refused  rulefile.Problems // of newer rules
	failures uint64
}

// openRules loads the rules that the settings name. Its error is all their mistakes, or that there is no such directory.
func openRules(s *Settings, log *slog.Logger) (*ruleSource, error) {
	r := &ruleSource{
		dir: s.rulesDirectory(),
		cfg: s.ruleConfig(),
		options: ratelimit.RulesOptions{
			KeyPrefix: s.KeyPrefix, DefaultAlgorithm: s.algorithm(), DefaultPolicy: s.policy(),
		},
		log:    log,
		onLoad: func() {},
	}
	if s.strict() {
		r.options.Wildcards = descriptors.FileOrder
	}
	var err error
	if r.sample, err = s.useSample(os.Environ()); err != nil {
		return nil, err
	}
	var problems rulefile.Problems
	if r.sample {
		r.first, problems = rulefile.Parse([]rulefile.File{{Name: "sample.yaml (built in)", Content: sampleRules}}, r.cfg)
	} else {
		r.first, problems = rulefile.Load(r.dir, r.cfg)
	}
	if err := problems.Err(); err != nil {
		if !s.ForceStart {
			return nil, fmt.Errorf("the rules have mistakes:\n%w\n(FORCE_START_WITHOUT_INITIAL_CONFIG=true starts without rules)", err)
		}
		r.refuse(r.first.Generation, problems)
		return r, nil
	}
	r.logWarnings(problems)
	return r, nil
}

func (s *Settings) ruleConfig() rulefile.Config {
	return rulefile.Config{
		DefaultAlgorithm: s.algorithm(), StoreErrorPolicy: s.policy(),
		MergeDomains: s.MergeDomains, IgnoreDotfiles: s.IgnoreDotfiles,
	}
}

// applyLoaded puts what openRules has loaded in force.
func (r *ruleSource) applyLoaded() {
	if r.first.Domains != nil {
		r.accept(r.first)
	}
}

// watch follows the files until ctx is done; SIGHUP has them read at once.
func (r *ruleSource) watch(ctx context.Context) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	if r.sample { // nothing to follow, and SIGHUP must not end the process
		<-ctx.Done()
		return nil
	}
	watcher := rulefile.NewWatcher(r.dir, r.cfg, r.first)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangup:
				watcher.Reload()
			}
		}
	}()
	watcher.Run(ctx, func(u rulefile.Update) {
		if u.Problems.HasErrors() {
			r.refuse(u.Rules.Generation, u.Problems)
			return
		}
		r.logWarnings(u.Problems)
		r.accept(u.Rules)
		r.log.Warn("rules reloaded", "directory", r.dir, "generation", u.Rules.Generation)
	})
	return nil
}

func (r *ruleSource) accept(rules rulefile.Rules) {
	r.apply(ratelimit.NewRules(rules.Domains, r.options), rules.Policies)
	r.mu.Lock()
	r.inForce, r.since, r.refused = rules, time.Now(), nil
	r.mu.Unlock()
	r.onLoad()
}

func (r *ruleSource) refuse(generation string, problems rulefile.Problems) {
	r.mu.Lock()
	r.refused = problems
	r.failures++
	r.mu.Unlock()
	r.log.Error("rules refused; those before stay in force", "directory", r.dir, "generation", generation, "problems", problems.Error())
}

func (r *ruleSource) logWarnings(problems rulefile.Problems) {
	for _, p := range problems {
		r.log.Warn("rules", "problem", p.String())
	}
}

// loaded reports whether any rules are in force.
func (r *ruleSource) loaded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.since.IsZero()
}

func (r *ruleSource) describe() string {
	if r.sample {
		return "built-in sample"
	}
	return r.dir
}

func (r *ruleSource) stats() telemetry.RuleStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return telemetry.RuleStats{
		Generation: r.inForce.Generation, Since: r.since, Current: r.refused == nil, Failures: r.failures,
	}
}

// serveRules is /rlconfig: the rules in force in the format of envoyproxy/ratelimit, and what was refused since.
func (r *ruleSource) serveRules(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	rules, refused := r.inForce, r.refused
	r.mu.Unlock()
	w.Header().Set("content-type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "%s# generation %s, from %s\n", rulefile.Dump(rules), rules.Generation, r.describe())
	if refused != nil {
		fmt.Fprintf(w, "# newer rules are refused for their mistakes:\n%s\n", refused.Error())
	}
}
