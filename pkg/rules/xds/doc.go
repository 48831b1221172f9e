// Package xds receives the rules of envoyproxy/ratelimit (ratelimit.config.ratelimit.v3 RateLimitConfig) from an xDS
// server, over ADS, state of the world. A [Client] follows the server. It refuses a response with a mistake and reports
// all mistakes; the last good rules stay active, also without a connection.
package xds
