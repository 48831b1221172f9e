-- The twin of token_bucket.go: missing tokens, told as the time in which they refill, are what the leaky bucket holds.
return engine(4) -- leaky_bucket
