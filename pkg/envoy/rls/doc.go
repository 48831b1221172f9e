// Package rls is Envoy's rate limit service, envoy.service.ratelimit.v3.RateLimitService: over gRPC ([Server.Answer])
// and as JSON over HTTP ([Server.ServeHTTP]).
package rls
