package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/zonedata"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/rules/xds"
)

// loadedRules are the rules that the service starts with.
type loadedRules struct {
	// sample is true if nothing is configured and the built-in rules are served.
	sample bool
	// offline is true if the rules are those of a command. Without configured API keys, there are none.
	offline bool
	// kind is the kind of the source as an attribute of logs. name is the directory or the xDS server, without secrets.
	kind, name string
	watcher    rules.Source   // nil for the sample
	server     *xds.Client    // watcher, nil for rule files
	first      rules.Set      // without a generation if the source has no rules yet
	problems   rules.Problems // of first
}

// loadRules loads the rules that the settings name, and awaits those of an xDS server. Its error lists all mistakes.
func loadRules(ctx context.Context, s *settings.Settings, files *certificates, log *slog.Logger) (l *loadedRules,
	err error) {
	l = &loadedRules{kind: "directory"}
	if l.sample, err = useSample(s); err != nil {
		return nil, err
	}
	switch {
	case l.sample:
		l.name = "built-in sample"
		l.first, l.problems = file.Parse([]file.File{{Name: "sample.yaml (built in)", Content: sampleRules}}, RuleConfig(s))
	case s.Rules.ConfigType == settings.ConfigXDS:
		l.kind, l.name = "xds_server", settings.Hide(s.XDS.Server)
		if l.server, err = newXDSClient(s, files, log.With(l.kind, l.name)); err != nil {
			return nil, err
		}
		l.watcher = l.server
	default:
		l.name = settings.Hide(s.Rules.Directory())
		l.watcher = file.NewWatcher(s.Rules.Directory(), RuleConfig(s))
	}
	if l.watcher != nil {
		l.first, l.problems = l.watcher.Load(ctx)
	}
	if err := l.problems.Err(); err != nil && l.server != nil {
		return nil, fmt.Errorf("the overlay has mistakes (CONFIG_GRPC_XDS_OVERLAY):\n%w", err)
	}
	if err := l.problems.Err(); err != nil && !s.Rules.ForceStart {
		return nil, fmt.Errorf("the rules have mistakes:\n%w\n(FORCE_START_WITHOUT_INITIAL_CONFIG=true starts without rules)",
			err)
	}
	return l, nil
}

// RuleConfig returns how to read rule files.
func RuleConfig(s *settings.Settings) file.Config {
	return file.Config{
		CheckOptions:   checkOptions(s),
		IgnoreDotfiles: s.Rules.IgnoreDotfiles, RequireEnd: s.Rules.RequireEnd, LeaveOutNotes: s.Strict(),
		AllowEmpty: true, // as at envoyproxy/ratelimit
	}
}

// checkOptions returns how to check rules of files and of an xDS server.
func checkOptions(s *settings.Settings) ratelimit.CheckOptions {
	o := ratelimit.CheckOptions{
		DefaultAlgorithm: s.Limits.DefaultAlgorithm, CalendarMonths: s.Limits.CalendarMonths,
		MergeDomains: s.Rules.MergeDomains, Strict: s.Strict(),
		Sent: s.Answers.ReplyHeaders().Sent(),
	}
	if s.UsesRedis() {
		o.DefaultPolicy = s.Limits.StoreErrorPolicy
	}
	return o
}

// ruleSource follows the source of the rules and activates them. /rlconfig and the metrics read it.
type ruleSource struct {
	*loadedRules
	live     *rules.Live
	activate func(rules.Set)
	log      *slog.Logger
	lines    ratelimit.Gate // of changeLog
	zoneData string         // its version when the process began to read it

	mu       sync.Mutex
	since    time.Time
	refused  rules.Problems // of newer rules
	changes  *rules.Changes // by the last reload, nil if there was none
	loads    uint64
	failures uint64
}

// newLive returns the holder of the active rules. It has no rules yet.
func newLive(s *settings.Settings) *rules.Live {
	o := rules.Options{
		Limits: ratelimit.RulesOptions{KeyPrefix: s.Limits.KeyPrefix, DefaultAlgorithm: s.Limits.DefaultAlgorithm,
			CalendarMonths: s.Limits.CalendarMonths, DefaultPolicy: s.Limits.StoreErrorPolicy,
			MetricValues: s.Telemetry.MetricValues, Status: s.Answers.Status},
		Headers: s.Answers.ReplyHeaders(),
	}
	if s.Strict() {
		o.Limits.Wildcards = descriptors.FileOrder
	}
	return rules.NewLive(o)
}

// newRuleSource activates the rules that were loaded, if there are any and they have no mistakes.
func newRuleSource(l *loadedRules, live *rules.Live, log *slog.Logger, activate func(rules.Set)) *ruleSource {
	r := &ruleSource{
		loadedRules: l, live: live, activate: activate, log: log.With(l.kind, l.name), zoneData: zonedata.Version(),
	}
	switch {
	case l.problems.HasErrors():
		r.refuse(r.changeLog(l.first.Generation), l.problems)
	case l.first.Generation != "":
		r.accept(r.log, l.first, l.problems, nil)
	}
	return r
}

// update activates or refuses rules that have changed.
func (r *ruleSource) update(u rules.Update) {
	log := r.changeLog(u.Set.Generation)
	if u.Problems.HasErrors() {
		r.refuse(log, u.Problems)
		return
	}
	c := rules.Compare(r.live.Active().Set, u.Set)
	c = rules.Changes{Added: firstNames(c.Added), Removed: firstNames(c.Removed), Changed: firstNames(c.Changed)}
	r.accept(log, u.Set, u.Problems, &c)
	log.Warn("rules reloaded", "added", c.Added, "removed", c.Removed, "changed", c.Changed)
}

// firstNames returns the first names, and the number of the others.
func firstNames(names []string) []string {
	if more := len(names) - maxListed; more > 0 {
		names = append(names[:maxListed], fmt.Sprintf("and %d more", more))
	}
	return append([]string{}, names...) // not null in JSON
}

// changesPerMinute is how many changes by an xDS server the log has in a minute. Files are read once a second at most.
const changesPerMinute = 10

// changeLog returns the log for a change. It discards changes beyond changesPerMinute; the next line has their number.
func (r *ruleSource) changeLog(generation string) *slog.Logger {
	log := r.log.With("generation", generation)
	if r.server == nil {
		return log
	}
	now := time.Now().Unix()
	if beginOfMinute := now - now%60; !r.lines.Pass(beginOfMinute, changesPerMinute) {
		r.lines.LeftOut.Add(1)
		return slog.New(slog.DiscardHandler)
	}
	if n := r.lines.LeftOut.Swap(0); n > 0 {
		log = log.With("left_out", n)
	}
	return log
}

func (r *ruleSource) accept(log *slog.Logger, set rules.Set, warnings rules.Problems, c *rules.Changes) {
	if len(warnings) > 0 {
		log.Warn("the rules have warnings", "warnings", len(warnings), "problems", warnings)
	}
	r.activate(set)
	r.mu.Lock()
	r.since, r.refused, r.changes = time.Now(), nil, c
	r.loads++
	r.mu.Unlock()
}

func (r *ruleSource) refuse(log *slog.Logger, problems rules.Problems) {
	r.mu.Lock()
	r.refused = problems
	r.failures++
	r.mu.Unlock()
	remain := "the previous rules stay active"
	if r.since.IsZero() {
		remain = "there are no previous rules"
	}
	log.Error("rules refused; "+remain, "errors", len(problems.Errors()), "problems", problems.Errors())
}

// counts returns how many times rules became active, and how many times they were refused.
func (r *ruleSource) counts() (loaded, refused uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loads, r.failures
}

// from returns the directory or the xDS server for people.
func (r *ruleSource) from() string {
	if r.server != nil {
		return "xDS server " + r.name
	}
	return r.name
}

// describe returns the active rules as attributes of the log, or why there are none.
func (r *ruleSource) describe() []any {
	if generation := r.live.Active().Set.Generation; generation != "" {
		return []any{"rules", r.name, "generation", generation, "zone_data", r.zoneData}
	}
	if r.problems.HasErrors() {
		return []any{"rules", "none: the rules in " + r.name + " are refused"}
	}
	return []any{"rules", "none: the " + r.from() + " has sent no rules yet"}
}

// serve serves /rlconfig: the active rules in the format of envoyproxy/ratelimit, and why newer rules were refused.
func (r *ruleSource) serve(response http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	active, refused := r.live.Active(), r.refused
	r.mu.Unlock()
	response.Header().Set("content-type", "text/plain; charset=utf-8")
	w := settings.HideSecrets(response)
	if active.Set.Generation == "" {
		fmt.Fprintf(w, "# no rules yet, from %s\n", r.from())
	} else {
		fmt.Fprintf(w, "%s# generation %s, from %s\n# zone data %s\n", rules.Dump(active), active.Set.Generation, r.from(),
			r.zoneData)
	}
	if refused != nil {
		fmt.Fprintf(w, "# newer rules are refused because of these mistakes:\n%s\n", refused.Error())
	}
}
