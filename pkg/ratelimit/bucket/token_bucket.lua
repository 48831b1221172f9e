-- The twin of token_bucket.go: a leaky bucket holds the missing tokens, as the time in which they refill.
return engine(4, merging) -- leaky_bucket
