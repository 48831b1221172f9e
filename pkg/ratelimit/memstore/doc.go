// Package memstore keeps buckets in the memory of this process. It is for a single instance, for an instance beside
// each Envoy, and as the fallback while Redis does not answer. The number of buckets is bounded, expired buckets are
// swept, and a snapshot file can keep them over a restart. See [New] and [Store.Take].
package memstore
