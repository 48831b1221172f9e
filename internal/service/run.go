package service

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/settings"
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
}

// Run starts the service and serves until ctx is done. Then it drains and returns nil.
func Run(ctx context.Context, cfg Config) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // reloadOnHangup handles it; without this, it would end the process until then
	defer signal.Stop(hangup)
	s, log := cfg.Settings, newLogger(cfg)
	for _, warning := range s.Warnings {
		log.Warn("an environment variable has no effect", "warning", warning.String())
	}
	registry := prometheus.NewRegistry()
	files := newCertificates(log)
	grpcTLS, err := openGRPCTLS(s, files, log, registry) // before the xDS server is awaited: mistakes are found at once
	if err != nil {
		return err
	}
	bugs := newPanics(log, registry)
	stores, err := openStores(ctx, s, files, log, registry, bugs) // as above
	if err != nil {
		return err
	}
	defer stores.close(log)
	loaded, err := loadRules(ctx, s, files, log)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil // the xDS server has sent no rules until now
	}
	if loaded.sample {
		s = onLoopback(s)
	}
	traces, err := openTracing(ctx, s, log)
	if err != nil {
		return err
	}
	defer closeTracing(traces)
	calls := telemetry.NewCalls(registry)
	live := newLive(s)
	deciding := decisions(s, live)
	deciding.Store, deciding.Fallback = stores.decides, stores.fallback
	deciding.Undecided = newUndecided(log, registry).observe
	limiter := ratelimit.New(deciding)
	keys, err := openKeys(ctx, s, loaded, log)
	if err != nil {
		return err
	}
	queue, decisionLog := flow.NewQueue(s.Authorization.MaxHeld), newDecisionLog(s, live, log)
	defer decisionLog.Flush() // after the last decision
	check := newAuthorization(s, live, keys.keys, log)
	defer check.tokens.Close()
	ready := newHealth()
	ready.set(rulesActive, !s.Process.HealthyConfigs)
	ready.set(redisAnswers, !s.Redis.HealthCheck || stores.redis == nil || stores.redisUp())
	source := newRuleSource(loaded, live, log, func(set rules.Set) {
		live.Activate(set, func(a *rules.Active) { check.setIssuers(a.Policies) })
		keys.checkPolicies(set.Policies, s, loaded.sample)
		ready.set(rulesActive, !s.Process.HealthyConfigs || len(set.Domains) > 0)
	})
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	requests := flow.New(flow.Config{
		Limiter: limiter, Authorizer: check.authorizer, RateLimit: codec(s), Queue: queue, Patience: patience(s),
		HTTP: flow.HTTPConfig{
			Headers: auth.HTTPHeaders{
				Source: string(s.Authorization.SourceHeader), Principal: string(s.Authorization.PrincipalHeader),
			},
			Timeout: s.Authorization.HTTPTimeout, NeedsAddress: check.authorizer.NeedsPeer, Log: log,
		},
		Other: nativeHealth{ready, calls}.answer, Calls: calls, Log: decisionLog, Traces: traces, Panicked: bugs.caught,
	})
	grpcServer := (&services{s, requests, ready, calls, bugs}).transport()
	listeners, err := listen(s, grpcTLS, portBounds(s, tuneGC(ctx, log)))
	defer listeners.close()
	if err != nil {
		return err
	}
	if err := checkPlaintext(s, listeners, log); err != nil {
		return err
	}
	registry.MustRegister(&metrics{cfg.Build, live, source, limiter, check, requests, queue, keys, stores, files,
		listeners})
	guards, endGuards := context.WithCancel(context.WithoutCancel(ctx))
	defer endGuards()
	for _, l := range listeners.guarded() {
		go l.Run(guards) // guards ends after the servers
	}
	closeStatistics, err := openStatistics(ctx, s, &telemetry.Stats{
		Rules: live.Limits, Totals: limiter.Totals(), Loads: source.counts, Calls: calls,
	}, log, registry)
	if err != nil {
		return err
	}
	defer closeStatistics() // after the servers have ended
	servers := append([]webServer{
		newWebServer("HTTP", listeners.http, requests.Checks(mainHandler(requests, ready)), bugs),
		newWebServer("debug", listeners.debug, debugHandler(registry, source.serve, ready, s.Listeners.Pprof &&
			listeners.pprof == nil),
			bugs),
	}, listeners.separateServers(s, registry, bugs, log)...)

	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { source.watch(groupCtx); return nil })
	group.Go(func() error { return keys.run(groupCtx) })
	if s.Redis.HealthCheck && stores.redis != nil {
		group.Go(func() error {
			stores.watch(groupCtx, func(up bool) { ready.set(redisAnswers, up) })
			return nil
		})
	}
	group.Go(func() error { return wrapServe("gRPC", grpcServer.Serve(listeners.grpc)) })
	for _, server := range servers {
		group.Go(func() error { return wrapServe(server.name, server.Serve(server.listener)) })
	}
	group.Go(func() error {
		<-groupCtx.Done()
		ready.Shutdown()
		if !loaded.sample { // no Envoy has to notice the end of the sample
			cfg.awaitEnvoys(log)
		}
		shutDown(s.Process.DrainTimeout, log, grpcServer, servers)
		return nil
	})
	if loaded.sample {
		banner(cfg.Stderr, s, listeners)
	}
	logAlways(log, "serving", append([]any{
		"grpc", listeners.grpc.Addr().String(), "http", listeners.http.Addr().String(),
		"debug", listeners.debug.Addr().String(), "store", s.Store(),
	}, source.describe()...)...)
	return group.Wait()
}
