// Package nearstore remembers what each answer of Redis shows of a bucket. When Redis cannot decide, it continues from
// that state instead of from a full bucket, and charges what it admitted to Redis later. After a loss of state in Redis
// it gives back what it remembers. It also denies requests that Redis would certainly deny, without asking Redis.
//
// The clock of Redis is called T. What is known of T is an interval: from the clock in an answer and the times at which
// the request was sent and the answer was received. See [Store] for the states of a bucket.
package nearstore
