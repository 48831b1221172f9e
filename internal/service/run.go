package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/envoyrls"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// StartError says why the service could not start: something for the operator to mend.
type StartError struct{ err error }

func (e *StartError) Error() string { return e.err.Error() }
func (e *StartError) Unwrap() error { return e.err }

// Run builds everything, top to bottom, and serves until ctx is done; then it drains and returns nil. It returns a *StartError
// when it could not start, and another error when a server failed.
func Run(ctx context.Context, s *Settings, build telemetry.Build, log *slog.Logger, stderr io.Writer) error {
	source, err := openRules(s, log)
	if err != nil {
		return &StartError{err}
	}
	if source.sample {
		s.serveOnLoopback()
	}
	stores, err := openStores(s, log)
	if err != nil {
		return &StartError{err}
	}
	defer stores.close(log)
	if err := stores.checkRedis(ctx, s); err != nil {
		return &StartError{err}
	}
	registry := prometheus.NewRegistry()
	calls, bugs := telemetry.NewRPCs(registry), newPanics(log, registry)
	limiter := ratelimit.New(ratelimit.Config{
		Store: stores.decides, Fallback: stores.memory, Undecided: newUndecided(log, registry).tell,
		MaxHeld: s.maxHeldPerBucket(), Shadow: s.ShadowMode, Quota: s.QuotaMode, Strict: s.strict(),
	})
	keys, err := openKeys(ctx, s, source, log)
	if err != nil {
		return &StartError{err}
	}
	auth := newAuthorization(s, limiter, keys.keys, calls, log)
	defer auth.close()
	source.apply = func(rules *ratelimit.Rules, policies map[string]*authz.Policy) {
		limiter.SetRules(rules) // first: a policy takes the rules in force along
		auth.setPolicies(policies)
		keys.checkPolicies(policies, s, source.sample)
	}
	source.applyLoaded()

	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(&telemetry.Collector{
		Limiter: limiter, Authorizer: auth.authorizer, Check: auth.checkStats, Issuers: auth.issuerStats, Keys: keys.stats,
		Memory: stores.memoryStats, Store: stores.up, Rules: source.stats, Certificates: stores.certificates,
		Build: build,
	})
	grpcServer := newGRPCServer(s, calls, bugs)
	rls := envoyrls.New(envoyrls.Config{
		Limiter: limiter, Headers: s.headers(),
		ProblemBody: s.ResponseBody == "problem", DynamicMetadata: s.DynamicMetadata,
	})
	rls.Register(grpcServer)
	auth.server.Register(grpcServer)
	ready := newHealth(grpcServer)
	source.onLoad = func() { ready.set(true) }
	if source.loaded() || !s.HealthyConfigs {
		ready.set(true)
	}

	listeners, err := listen(s)
	if err != nil {
		return &StartError{err}
	}
	defer listeners.close()
	if err := s.checkPlaintext(listeners); err != nil {
		return &StartError{err}
	}
	telemetry.RegisterPlaintext(registry, listeners.plaintext())
	memory, reserved := tuneGC(log)
	defer runtime.KeepAlive(reserved)
	guards, endGuards := context.WithCancel(context.WithoutCancel(ctx))
	defer endGuards()
	listeners.guard(guards, portBounds(s, memory), registry)
	var profiles http.Handler
	if s.Pprof && listeners.pprof == nil {
		profiles = profilesHandler()
	}
	servers := []webServer{
		{"HTTP", listeners.http, NewHTTPServer(bugs.handler("HTTP", auth.server.HTTP(mainHandler(rls, ready))))},
		{"debug", listeners.debug, NewHTTPServer(bugs.handler("debug", debugHandler(registry, source.serveRules, ready, profiles)))},
	}
	if listeners.pprof != nil {
		servers = append(servers, webServer{"pprof", listeners.pprof, NewHTTPServer(bugs.handler("pprof", profilesHandler()))})
		log.Info("serving profiles", "pprof", listeners.pprof.Addr())
	}

	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return source.watch(groupCtx) })
	group.Go(func() error { return keys.run(groupCtx) })
	group.Go(func() error { return WrapServe("gRPC", grpcServer.Serve(listeners.grpc)) })
	for _, server := range servers {
		group.Go(func() error { return WrapServe(server.name, server.Serve(server.listener)) })
	}
	group.Go(func() error {
		<-groupCtx.Done()
		ready.drain()
		drain(s, source.sample, log, grpcServer, servers)
		return nil
	})
	banner(stderr, source, listeners)
	log.Info("serving", "grpc", listeners.grpc.Addr(), "http", listeners.http.Addr(), "debug", listeners.debug.Addr(),
		"store", s.BackendType, "rules", source.describe(), "generation", source.stats().Generation)
	warnPlaintext(s, listeners, log)
	return group.Wait()
}

// webServer is a server and the listener that it serves.
type webServer struct {
	name     string
	listener net.Listener
	*http.Server
}

func WrapServe(name string, err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", name, err)
}

// drain goes on serving for a while as not healthy, so that no Envoy that has not noticed yet fails a request; then it lets
// requests in flight finish. The sample is for a terminal, where nobody waits for an Envoy.
func drain(s *Settings, sample bool, log *slog.Logger, g *grpc.Server, servers []webServer) {
	if s.DrainDelay > 0 && !sample {
		log.Info("draining", "delay", s.DrainDelay)
		<-time.After(s.DrainDelay)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.DrainTimeout)
	defer cancel()
	stopped := context.AfterFunc(ctx, g.Stop) // what is still in flight then is cut off
	defer stopped()
	g.GracefulStop()
	for _, server := range servers {
		if err := server.Shutdown(ctx); err != nil {
			log.Warn("HTTP requests cut off", "error", err)
		}
	}
}
