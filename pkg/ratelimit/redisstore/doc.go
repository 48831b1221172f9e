// Package redisstore keeps buckets in Redis or Valkey, so that all replicas of the service share them. Requests gather
// while earlier calls are on the wire, and one script call decides all of them. See [New] and [Store.Start].
package redisstore
