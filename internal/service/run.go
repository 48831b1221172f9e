package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/hold"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/envoy/unary"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// Config configures Run.
type Config struct {
	Settings *Settings
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
	for _, warning := range slices.Concat(s.environment.ineffective(), s.ineffectiveRedis(), s.ineffectiveGRPCTLS(),
		s.ineffectiveXDS()) {
		log.Warn("an environment variable has no effect", "warning", warning)
	}
	registry := prometheus.NewRegistry()
	files := newCertificates(log)
	grpcTLS, err := openGRPCTLS(s, files, log, registry) // before the xDS server is awaited: mistakes are found at once
	if err != nil {
		return err
	}
	stores, err := openStores(ctx, s, files, log, registry) // as above
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
		s = s.onLoopback()
	}
	traces, err := openTracing(ctx, s, log)
	if err != nil {
		return err
	}
	defer traces.close()
	calls, bugs := telemetry.NewCalls(registry), newPanics(log, registry)
	live := newLive(s)
	decisions := s.decisions(live)
	decisions.Store, decisions.Fallback = traces.store(stores.decides), stores.memory
	decisions.Undecided = newUndecided(log, registry).observe
	limiter := ratelimit.New(decisions)
	keys, err := openKeys(ctx, s, loaded, log)
	if err != nil {
		return err
	}
	queue := hold.New(s.MaxHeld)
	observers := newObservers(s, live, traces, log)
	defer observers.close()
	check := newAuthorization(s, live, limiter, queue, keys.keys, calls, observers.check(), log)
	defer check.tokens.Close()
	ready := newHealth()
	ready.set(rulesActive, !s.HealthyConfigs)
	ready.set(redisAnswers, !s.RedisHealth || stores.redis == nil || stores.redisUp())
	source := newRuleSource(loaded, live, log, func(set rules.Set) {
		live.Activate(set, func(a *rules.Active) { check.tokens.SetIssuers(a.Policies.Issuers()) })
		keys.checkPolicies(set.Policies, s, loaded.sample)
		ready.set(rulesActive, !s.HealthyConfigs || len(set.Domains) > 0)
	})
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	grpcServer := newGRPCServer(s, calls, bugs, traces.options()...)
	answers := s.answers(limiter, queue)
	answers.Decided = observers.rateLimit()
	limits := rls.New(answers)
	unary.Register(grpcServer, rls.Method, limits.Answer)
	unary.Register(grpcServer, auth.Method, check.server.Answer)
	grpc_health_v1.RegisterHealthServer(grpcServer, ready)
	memory, reserved := tuneGC(s.environment, log)
	defer runtime.KeepAlive(reserved)
	listeners, err := listen(s, grpcTLS, portBounds(s, memory))
	defer listeners.close()
	if err != nil {
		return err
	}
	if err := s.checkPlaintext(listeners, log); err != nil {
		return err
	}
	registry.MustRegister(&metrics{cfg.Build, live, source, limiter, check, keys, stores, files, listeners})
	guards, endGuards := context.WithCancel(context.WithoutCancel(ctx))
	defer endGuards()
	for _, l := range listeners.guarded() {
		go l.Run(guards) // guards ends after the servers
	}
	mapping, err := s.metricMapping(log)
	if err != nil {
		return err
	}
	stats := &telemetry.Stats{Rules: live.Limits, Totals: limiter.Totals(), Loads: source.counts, Calls: calls}
	registry.MustRegister(telemetry.NewMapped(stats, mapping))
	statsd, err := newStatsd(s, log)
	if err != nil {
		return err
	}
	calls.SendTimes(statsd)
	defer sendStatistics(ctx, statsd, stats)() // until the servers have ended
	debug := debugHandler(registry, source.serve, ready, s.Pprof && listeners.pprof == nil)
	servers := []webServer{
		{"HTTP", listeners.http, newHTTPServer(bugs.handler("HTTP",
			traces.handler(check.server.HTTP(mainHandler(limits, ready)))))},
		{"debug", listeners.debug, newHTTPServer(bugs.handler("debug", debug))},
	}
	if listeners.prometheus != nil {
		metrics := metricsHandler(registry, string(s.PrometheusPath))
		servers = append(servers, webServer{"Prometheus", listeners.prometheus,
			newHTTPServer(bugs.handler("Prometheus", metrics))})
		log.Info("serving metrics", "prometheus", listeners.prometheus.Addr().String()+string(s.PrometheusPath))
	}
	if listeners.pprof != nil {
		servers = append(servers, webServer{"pprof", listeners.pprof,
			newHTTPServer(bugs.handler("pprof", profilesHandler()))})
		log.Info("serving profiles", "pprof", listeners.pprof.Addr().String())
	}

	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { source.watch(groupCtx); return nil })
	group.Go(func() error { return keys.run(groupCtx) })
	if s.RedisHealth && stores.redis != nil {
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
		if s.DrainDelay > 0 && !loaded.sample { // no Envoy has to notice the end of the sample
			log.Info("draining", "delay", s.DrainDelay)
			if cfg.Terminal {
				fmt.Fprintf(cfg.Stderr, "extauthz: draining for %g s; press Ctrl-C again to stop now\n", s.DrainDelay.Seconds())
			}
			<-time.After(s.DrainDelay)
		}
		shutDown(s.DrainTimeout, log, grpcServer, servers)
		return nil
	})
	if loaded.sample {
		banner(cfg.Stderr, s, listeners)
	}
	generation := live.Active().Set.Generation
	active := []any{"rules", loaded.name, "generation", generation}
	if generation == "" {
		active = []any{"rules", "none: " + source.whyNone()}
	}
	logAlways(log, "serving", append([]any{
		"grpc", listeners.grpc.Addr().String(), "http", listeners.http.Addr().String(), "debug",
		listeners.debug.Addr().String(),
		"store", s.BackendType}, active...)...)
	return group.Wait()
}

// webServer is a server and the listener that it serves.
type webServer struct {
	name     string
	listener net.Listener
	*http.Server
}

func wrapServe(name string, err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", name, err)
}

// shutDown accepts no new requests, and waits at most timeout for requests in flight.
func shutDown(timeout time.Duration, log *slog.Logger, g *grpc.Server, servers []webServer) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	stopped := context.AfterFunc(ctx, g.Stop) // it cuts off requests that are still in flight
	defer stopped()
	g.GracefulStop()
	for _, server := range servers {
		if err := server.Shutdown(ctx); err != nil {
			log.Warn("HTTP requests were cut off after DRAIN_TIMEOUT", "server", server.name, "error", err)
		}
	}
}
