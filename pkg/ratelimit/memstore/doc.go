// Package memstore keeps buckets in the memory of this process. It is for a single instance, and for an instance beside
// each Envoy. It is a bounded table of buckets, a clock, and a snapshot file that can keep the buckets over a restart.
// See [New] and [Store.Start].
package memstore
