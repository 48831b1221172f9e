// Package table keeps buckets in memory: a bounded number of them, in shards with a lock each. A full table evicts the
// buckets whose clients lose the least, and a sweep drops those that have expired. It knows no store: memstore decides
// on its buckets, and nearstore keeps here what it knows of those in Redis.
package table
