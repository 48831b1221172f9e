package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
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
	watcher *rulefile.Watcher // nil for the sample
	first   rulefile.Rules

	mu       sync.Mutex
	inForce  rulefile.Rules
	since    time.Time
	refused  rulefile.Problems // of newer rules
	held     []string          // what newer rules lack that wait until their files have been quiet
	failures uint64
}

// openRules loads the rules that the settings name. Its error is all their mistakes, or that there is no such directory.
func openRules(s *Settings, log *slog.Logger) (*ruleSource, error) {
	r := &ruleSource{
		dir: s.rulesDirectory(),
		cfg: s.RuleConfig(),
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
		r.watcher = rulefile.NewWatcher(r.dir, r.cfg)
		r.first, problems = r.watcher.Load()
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

func (s *Settings) RuleConfig() rulefile.Config {
	return rulefile.Config{
		DefaultAlgorithm: s.algorithm(), StoreErrorPolicy: s.policy(),
		MergeDomains: s.MergeDomains, IgnoreDotfiles: s.IgnoreDotfiles, RequireEnd: s.RequireEnd,
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
	if r.sample { // nothing to follow, and SIGHUP must not end the process
		reloadOnHangup(ctx, func() {})
		return nil
	}
	go reloadOnHangup(ctx, r.watcher.Reload)
	r.watcher.Run(ctx, r.update)
	return nil
}

// update handles a change of the files.
func (r *ruleSource) update(u rulefile.Update) {
	log := r.log.With("directory", r.dir, "generation", u.Rules.Generation)
	switch {
	case u.Problems.HasErrors():
		r.refuse(u.Rules.Generation, u.Problems)
		return
	case u.Held:
		r.hold(u.Lost)
		log.Warn("rules were changed in place and lack some of what the rules in force restrict; they take effect when the files have been unchanged "+
			"for "+rulefile.QuietPeriod.String()+" (a file that is renamed into place takes effect at once)", "lost", u.Lost)
		return
	}
	r.logWarnings(u.Problems)
	r.accept(u.Rules)
	if len(u.Lost) > 0 {
		log = log.With("lost", u.Lost)
	}
	log.Warn("rules reloaded")
}

// hold remembers that newer rules wait, and what they lack.
func (r *ruleSource) hold(lost []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused, r.held = nil, lost
}

func (r *ruleSource) accept(rules rulefile.Rules) {
	r.apply(ratelimit.NewRules(rules.Domains, r.options), rules.Policies)
	r.mu.Lock()
	r.inForce, r.since, r.refused, r.held = rules, time.Now(), nil, nil
	r.mu.Unlock()
	r.onLoad()
}

func (r *ruleSource) refuse(generation string, problems rulefile.Problems) {
	r.mu.Lock()
	r.refused, r.held = problems, nil
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
		Generation: r.inForce.Generation, Since: r.since, Current: r.refused == nil, Held: r.held != nil, Failures: r.failures,
	}
}

// serveRules is /rlconfig: the rules in force in the format of envoyproxy/ratelimit, and what was refused or held since.
func (r *ruleSource) serveRules(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	rules, refused, held := r.inForce, r.refused, r.held
	r.mu.Unlock()
	w.Header().Set("content-type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "%s# generation %s, from %s\n", rulefile.Dump(rules), rules.Generation, secretHider().Replace(r.describe()))
	if refused != nil {
		fmt.Fprintf(w, "# newer rules are refused for their mistakes:\n%s\n", refused.Error())
	}
	if held != nil {
		fmt.Fprintf(w, "# newer rules take effect when their files have been unchanged for %s; they lack:\n", rulefile.QuietPeriod)
		for _, name := range held {
			fmt.Fprintf(w, "#   %s\n", name)
		}
	}
}
