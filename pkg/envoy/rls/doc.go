// Package rls is the codec of Envoy's rate limit service, envoy.service.ratelimit.v3.RateLimitService: messages become
// queries ([Memory.Unmarshal]), and results become messages ([Codec.AppendResponse]).
package rls
