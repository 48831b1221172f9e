package bucket

// tokenBucket starts with Burst tokens and refills Requests in each Window. A leaky bucket holds its missing tokens,
// as the time in which they refill. Both have one engine and give identical answers.
type tokenBucket struct{ leakyBucket }
