// Package xds receives rules from an xDS server: the configuration of envoyproxy/ratelimit
// (ratelimit.config.ratelimit.v3 RateLimitConfig) over ADS, state of the world. A [Client] follows the server. A
// response with a mistake is refused, with all its mistakes, and the last good rules stay active. A lost connection
// changes no rules.
package xds
