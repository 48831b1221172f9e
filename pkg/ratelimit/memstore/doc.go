// Package memstore keeps buckets in the memory of this process. It is for a single instance, and for an instance beside
// each Envoy. With Redis, nearstore keeps here what it knows of the buckets there. The number of buckets is bounded,
// expired buckets are swept, and a snapshot file can keep them over a restart. See [New] and [Store.Take].
package memstore
