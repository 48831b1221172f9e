// Package rediskeys keeps API keys in Redis, where all replicas of the service share them. It does not trust the users
// of Redis: each record, and the set of all records, is signed with the server secret, and each reading is bounded.
//
// A replica copies all keys with [Store.Load] and follows changes with [Store.Follow]. Its copy stays active while
// Redis is unreachable, or has unsigned or too many records.
package rediskeys
