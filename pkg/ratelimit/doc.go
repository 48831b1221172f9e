// Package ratelimit decides requests: descriptors are matched with rules, rules name buckets, a store takes from the
// buckets, and the decisions become one result. It also says what rules are (Domain) and which of them make no sense
// (Check). It knows neither Envoy's protos nor Redis, nor how rules are written in a file.
package ratelimit
