package table

// chunkLen is how many items of chunks are allocated together.
const chunkLen = 256

// chunks is a slice that moves no items when it grows, so that it grows fast.
type chunks[T any] []*[chunkLen]T

// at returns the item i, which must be within reach.
func (c chunks[T]) at(i uint32) *T { return &c[i/chunkLen][i%chunkLen] }

// reach makes room up to the item i.
func (c *chunks[T]) reach(i uint32) {
	for int(i/chunkLen) >= len(*c) {
		*c = append(*c, new([chunkLen]T))
	}
}
