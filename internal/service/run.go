package service

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/page"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// Config configures Run.
type Config struct {
	Settings *settings.Settings
	// Build is the version of the program, for metrics.
	Build Build
	// Stderr gets the log, and the banner of the sample.
	Stderr io.Writer
	// Terminal is true if Stderr is a terminal, where the operator can press Ctrl-C.
	Terminal bool
	// Clock is a virtual clock of the memory store, API keys and tokens, in µs since 1970. With it, no keys of issuers are
	// fetched. It must be safe for concurrent use. Default: memstore.Config.Clock, and time.Now for keys and tokens.
	Clock func() int64
}

// now returns the clock of API keys and tokens, nil for the default.
func (cfg *Config) now() func() time.Time {
	if cfg.Clock == nil {
		return nil
	}
	return func() time.Time { return time.UnixMicro(cfg.Clock()) }
}

// Run starts the service, serves until ctx is done, drains and returns nil. Each step needs the one before.
func Run(ctx context.Context, cfg Config) (err error) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // otherwise it would end the process
	defer signal.Stop(hangup)
	base, err := newProcess(cfg)
	defer func() {
		if !base.stderr.close() && err != nil {
			err = ErrBlocked
		}
	}()
	if err != nil {
		return err
	}
	stores, err := openStores(ctx, base)
	if err != nil {
		return err
	}
	defer stores.close()
	loaded, err := loadRules(ctx, cfg.Settings, base.files, base.log)
	if err != nil || ctx.Err() != nil {
		return err
	}
	rules, err := openRules(ctx, stores, loaded)
	if err != nil {
		return err
	}
	defer rules.tokens.Close()
	defer rules.opaque.Close()
	requests, err := openRequests(ctx, rules)
	if err != nil {
		return err
	}
	defer requests.close()
	return serve(ctx, requests, hangup)
}

// process is what all steps share.
type process struct {
	Config   // its Stderr is stderr
	stderr   *logQueue
	log      *slog.Logger
	registry *prometheus.Registry
	files    *certificates
	bugs     *panics
	tls      *grpcTLS // nil if the gRPC listener has no TLS
}

func newProcess(cfg Config) (*process, error) {
	p := &process{Config: cfg, stderr: newLogQueue(cfg), registry: prometheus.NewRegistry()}
	p.Stderr = p.stderr
	p.log = newLogger(p.Config)
	for _, warning := range cfg.Settings.Warnings {
		p.log.Warn("an environment variable has no effect", "warning", warning.String())
	}
	p.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.files, p.bugs = newCertificates(p.log), newPanics(p.log, p.registry)
	return p, p.openGRPCTLS()
}

// activeRules are the rules of the service with what follows them: API keys, the keys of issuers, and health.
type activeRules struct {
	*stores
	live       *rules.Live
	source     *ruleSource
	keys       *keySource
	authorizer *authz.Authorizer
	tokens     *jwt.Verifier
	opaque     *jwt.Introspector
	ready      *health
}

// openRules activates the rules that were loaded.
func openRules(ctx context.Context, st *stores, loaded *loadedRules) (*activeRules, error) {
	s := st.Settings
	keys, err := openKeys(ctx, s, loaded, st.now(), st.log)
	if err != nil {
		return nil, err
	}
	r := &activeRules{stores: st, live: newLive(s), keys: keys, ready: newHealth()}
	r.openAuthorization()
	r.ready.set(rulesActive, !s.Process.HealthyConfigs)
	r.ready.set(redisAnswers, !st.watched() || st.redisUp())
	r.source = newRuleSource(loaded, r.live, st.log, func(set rules.Set) {
		r.live.Activate(set, func(a *rules.Active) {
			r.tokens.SetIssuers(authz.CredentialsOf[*jwt.Credential](a.Policies))
		})
		r.checkSecrets()
		keys.checkPolicies(set.Policies, s, loaded.sample)
		r.ready.set(rulesActive, !s.Process.HealthyConfigs || len(set.Domains) > 0)
	})
	return r, nil
}

// follow follows what can change while the service runs, until ctx is done. After each hangup it reads files at once.
func (r *activeRules) follow(ctx context.Context, group *errgroup.Group, hangup <-chan os.Signal) {
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hangup:
			}
			if w := r.source.watcher; w != nil {
				w.Reload()
			}
			if w := r.keys.watcher; w != nil {
				w.Reload()
			}
		}
	})
	if w := r.source.watcher; w != nil {
		group.Go(func() error { w.Run(ctx, r.source.update); return nil })
	}
	r.keys.follow(ctx, group)
	if r.watched() {
		group.Go(func() error {
			r.watch(ctx, func(up bool) { r.ready.set(redisAnswers, up) })
			return nil
		})
	}
}

// requests is the flow of requests, with its parts.
type requests struct {
	*activeRules
	*flow.Flow
	limiter   *ratelimit.Limiter
	queue     *flow.Queue
	calls     *telemetry.Calls
	decisions *telemetry.DecisionLog // nil unless LOG_LEVEL has decisions
	traces    *telemetry.Tracing
	history   page.History
}

func openRequests(ctx context.Context, rules *activeRules) (*requests, error) {
	s := rules.Settings
	traces, err := openTracing(ctx, s, rules.log)
	if err != nil {
		return nil, err
	}
	deciding := decisions(s, rules.live)
	deciding.OwnLimit = ownLimits(rules.live, rules.keys.keys)
	deciding.Store, deciding.Fallback = rules.decides, rules.fallback
	deciding.Undecided = observeUndecided(rules.log, rules.registry)
	deciding.Undone = func(domain string, holds int, err error) {
		rules.log.Debug("a call has ended before its answer, so its holds are undone", "domain", domain, "holds", holds,
			"error", err)
	}
	deciding.Missed, deciding.Clock, deciding.Now = telemetry.LogMisses(rules.log), rules.Clock, rules.now()
	r := &requests{
		activeRules: rules, limiter: ratelimit.New(deciding), queue: flow.NewQueue(s.Authorization.MaxHeld),
		calls: telemetry.NewCalls(rules.registry), traces: traces, history: page.History{Shadow: s.Limits.Shadow},
	}
	if rules.log.Enabled(ctx, slog.LevelInfo) {
		r.decisions = telemetry.NewDecisionLog(telemetry.DecisionLogConfig{
			Log: rules.log, Rules: rules.live.Limits, Values: ratelimit.ClientValues(s.Telemetry.LogClientValues),
		})
	}
	r.Flow = flow.New(flow.Config{
		Limiter: r.limiter, Authorizer: rules.authorizer, RateLimit: codec(s), Queue: r.queue, Patience: patience(s),
		HTTP: flow.HTTPConfig{
			Headers: auth.HTTPHeaders{
				Source: s.Authorization.SourceHeader, Principal: s.Authorization.PrincipalHeader,
			},
			Timeout: s.Authorization.HTTPTimeout, Log: rules.log,
			NeedsAddress: func() bool { // the banner of the sample has a command to try /check without Envoy
				return !rules.source.sample && rules.authorizer.NeedsPeer()
			},
		},
		Other: r.answerHealth, Calls: r.calls, Log: r.decisions, Traces: traces,
		Panicked: rules.bugs.caught,
	})
	return r, nil
}

// close writes the log and the spans that wait. It must run after the last decision.
func (r *requests) close() {
	r.decisions.Flush()
	if r.traces != nil {
		const patience = 3 * time.Second // with a collector that does not answer
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = r.traces.Close(ctx) // its Config.Failed has reported an error of the collector
	}
}

// serve opens all ports, serves until ctx is done, and drains.
func serve(ctx context.Context, r *requests, hangup <-chan os.Signal) error {
	s, log, sample := r.Settings, r.log, r.source.sample
	if sample {
		s = onLoopback(s)
	}
	listeners, err := listen(s, r.tls, portBounds(s, tuneGC(ctx, log)))
	defer listeners.close()
	if err != nil {
		return err
	}
	if err := checkPlaintext(s, listeners, log); err != nil {
		return err
	}
	r.registry.MustRegister(&metrics{r, listeners})
	guards, endGuards := context.WithCancel(context.WithoutCancel(ctx))
	defer endGuards()
	for _, l := range listeners.guarded {
		go l.Run(guards) // guards ends after the servers
	}
	closeStatistics, err := r.openStatistics(ctx, s)
	if err != nil {
		return err
	}
	defer closeStatistics() // after the servers have ended
	grpcServer := r.transport()
	servers := listeners.webServers(r)

	group, groupCtx := errgroup.WithContext(ctx)
	r.follow(groupCtx, group, hangup)
	r.history.Tick(r.live.Limits(), time.Now())
	group.Go(func() error { r.history.Run(groupCtx, r.live.Limits); return nil })
	group.Go(func() error { return wrapServe("gRPC", grpcServer.Serve(listeners.guarded["grpc"])) })
	for _, server := range servers {
		group.Go(func() error { return wrapServe(server.name, server.Serve(server.listener)) })
	}
	group.Go(func() error {
		<-groupCtx.Done()
		r.ready.Shutdown()
		if !sample { // no Envoy has to notice the end of the sample
			r.awaitEnvoys(log)
		}
		shutDown(s.Process.DrainTimeout, log, grpcServer, servers)
		return nil
	})
	if sample {
		banner(r.Stderr, s, listeners)
	}
	serving := slog.NewRecord(time.Now(), slog.LevelInfo, "serving", 0)
	serving.Add("grpc", listeners.address("grpc"), "http", listeners.address("http"), "debug", listeners.address("debug"),
		"store", s.Store())
	serving.Add(r.source.describe()...)
	_ = log.Handler().Handle(ctx, serving) // whatever LOG_LEVEL is
	return group.Wait()
}
