//go:build !race

package texts

const overwrite = false
