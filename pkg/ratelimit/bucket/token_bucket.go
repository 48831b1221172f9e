package bucket

// tokenBucket starts with Burst tokens and refills Requests a Window. The tokens that are missing, told as the time in which
// they refill, are what the leaky bucket holds: both have one engine and give identical answers.
type tokenBucket struct{ leakyBucket }
