package table

import (
	"encoding/binary"
	"hash/maphash"
)

// Digest stands for a key, so that a bucket needs the same memory with every key. It is a keyed hash: clients cannot
// make two keys with the same digest, nor choose the place of a bucket in a table.
type Digest [16]byte

// seeds are those of a table. They never leave the process.
type seeds [2]maphash.Seed

func newSeeds() seeds { return seeds{maphash.MakeSeed(), maphash.MakeSeed()} }

func (s *seeds) digest(key string) (d Digest) {
	binary.LittleEndian.PutUint64(d[:], maphash.String(s[0], key))
	binary.LittleEndian.PutUint64(d[8:], maphash.String(s[1], key))
	return d
}

// hash is a part of the digest. Its high bits choose the shard, its low bits the place in the shard's index.
func (d *Digest) hash() uint64 { return binary.LittleEndian.Uint64(d[:]) }
