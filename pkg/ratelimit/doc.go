// Package ratelimit decides whether requests pass. A [Limiter] matches descriptors with [Rules], a [Store] takes from
// the buckets of the matching limits, and the decisions become one [Result]. [Domain] describes rules as data, and
// [Check] returns their mistakes. The package depends on neither Envoy's protos, Redis nor the format of rule files.
// Begin with [Limiter.DecideAll].
package ratelimit
