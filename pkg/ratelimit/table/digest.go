package table

import "encoding/binary"

// Digest stands for a key, so that a bucket needs the same memory with every key. It is a keyed hash: clients cannot
// make two keys with the same digest, nor choose the place of a bucket in a table.
type Digest [16]byte

// hash is a part of the digest. Its high bits choose the shard, its low bits the place in the shard's index.
func (d *Digest) hash() uint64 { return binary.LittleEndian.Uint64(d[:]) }
