package service

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestTextsWhileRedisHangs is TestTextsOfRequestsAreNotKept for requests that Redis does not answer in time. Their
// memory is used again while a late answer may still come. Clients of several connections also give up.
func TestTextsWhileRedisHangs(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	grpcAddr, _, debugAddr, out := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRootWith(t, keepingRules)
		s.Listeners.Transport = "native"
		s.Redis.Main.URL = redis.Addr
		s.Redis.Main.Timeout = 20 * time.Millisecond
		s.Redis.DenialCache = true
		s.Answers.DynamicMetadata = true
		s.Telemetry.LogLevel = settings.LogLevel(slog.LevelDebug)
		s.Telemetry.LogClientValues = true
	}))
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 4 {
		conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client := rlsv3.NewRateLimitServiceClient(conn)
		for i := range 8 {
			all.Go(func() {
				for name := tenantNamed(i); ctx.Err() == nil; {
					within, cancel := context.WithTimeout(ctx, 5*time.Millisecond+rand.N(100*time.Millisecond))
					res, err := client.ShouldRateLimit(within, requestOf(name))
					cancel()
					<-time.After(rand.N(2 * time.Millisecond)) // the clients must not take all CPU of the service
					if err != nil {
						continue
					}
					// The metadata names the tenant of the request in each of its descriptors, and no other tenant.
					metadata := res.GetDynamicMetadata().String()
					own, tenants := strings.Count(metadata, name), strings.Count(metadata, "tenant-")
					if own < 4 || own != tenants || len(res.GetStatuses()) != 5 {
						t.Errorf("the answer for %s: %v", name, res)
						return
					}
				}
			})
		}
	}
	for range 10 {
		<-time.After(rand.N(100 * time.Millisecond))
		redis.Pause()
		<-time.After(rand.N(60 * time.Millisecond))
		redis.Resume()
	}
	stop()
	all.Wait()
	if err := checkKeys(redis, 1); err != nil {
		t.Error(err)
	}
	_, metrics := get(t, "http://"+debugAddr+"/metrics")
	checkNotOverwritten(t, metrics, out.String())
	if strings.Contains(out.String(), "panic") {
		t.Errorf("a panic:\n%.5000s", out)
	}
}
