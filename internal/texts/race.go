//go:build race

package texts

// overwrite is set in builds with the race detector, as `make test` makes them.
const overwrite = true
