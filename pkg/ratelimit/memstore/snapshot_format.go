package memstore

import (
	"encoding/binary"
	"io"
	"math"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// The first byte of a block's content says what it holds: buckets, one after the other (appendEntry), or, in the last block,
// the number of all buckets (a uvarint). snapshot_block.go says what a file is made of.
const (
	blockBuckets = 'B'
	blockEnd     = 'E'
)

// blockSize is how many bytes end a block before a bite is over: logs can make a bucket large, and it is copied under a lock.
const blockSize = 1 << 16

// writeSnapshot writes all buckets. It locks one shard at a time, for one bite: what is charged meanwhile may be in it or not.
func (s *Store) writeSnapshot(w io.Writer) error {
	blocks := blockWriter{w: w}
	if err := blocks.title(); err != nil {
		return err
	}
	content, total := []byte(nil), uint64(0)
	for i := range s.shards {
		for from, more := uint32(0), true; more; {
			var n int
			content, n, from, more = s.shards[i].appendBite(append(content[:0], blockBuckets), from)
			if n == 0 {
				continue
			}
			total += uint64(n)
			if err := blocks.write(content); err != nil {
				return err
			}
		}
	}
	return blocks.write(binary.AppendUvarint([]byte{blockEnd}, total))
}

// appendBite appends the next entries from a slot on, and returns how many, where to go on and whether there is more.
func (sh *shard) appendBite(b []byte, from uint32) (content []byte, n int, next uint32, more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	end := min(from+bite, sh.table.slots)
	for next = from; next < end && len(b) < blockSize; next++ {
		if e := sh.table.at(next); e.expires != 0 {
			b = sh.table.appendEntry(b, e)
			n++
		}
	}
	return b, n, next, next < sh.table.slots
}

// appendEntry appends the algorithm (a byte), the rule (64 bits, little endian), the limit, the time of expiry, the state and the key
// with its length, as varints, and then the grants of a log with their number, each as the time since the one before and its cost.
func (t *table) appendEntry(b []byte, e *entry) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, byte(e.algorithm)), t.groups.rule(e))
	for _, v := range []int64{
		int64(e.requests), e.window, int64(e.burst), int64(e.expires), e.last, e.count, e.part,
	} {
		b = binary.AppendVarint(b, v)
	}
	b = append(binary.AppendUvarint(b, uint64(len(t.key(e)))), t.key(e)...)
	if e.grants == 0 {
		return append(b, 0)
	}
	grants, before := *t.logs.at(e.grants), int64(0)
	b = binary.AppendUvarint(b, uint64(len(grants)))
	for _, g := range grants {
		b = binary.AppendVarint(binary.AppendVarint(b, g.At-before), g.Cost)
		before = g.At
	}
	return b
}

// readSnapshot restores all buckets that have not expired; it is called before anyone else knows the store.
func (s *Store) readSnapshot(r io.Reader) error {
	blocks := blockReader{r: r}
	if err := blocks.title(); err != nil {
		return err
	}
	now := s.clock()
	for total := uint64(0); ; {
		content, err := blocks.read()
		if err != nil {
			return err
		}
		d := decoder{b: content}
		switch d.byte() {
		case blockBuckets:
			for len(d.b) > 0 && !d.bad {
				saved, state, expires := d.bucket()
				if d.bad {
					break
				}
				total++
				if !expired(expires, now) {
					s.restore(&saved, &state, now, expires)
				}
			}
		case blockEnd:
			if n := d.uvarint(); n != total || d.bad {
				return unsound("it ends after %d buckets of %d", total, n)
			}
			return blocks.end()
		default:
			d.bad = true
		}
		if d.bad {
			return unsound("block %d is unreadable although its checksum is right: written by another version?", blocks.n)
		}
	}
}

// restore puts a bucket where it belongs; a later one with the same key wins, since it was saved later.
func (s *Store) restore(saved *bucket.Take, state *bucket.State, now int64, expires uint32) {
	hash := s.hash(saved.Key)
	sh := s.shardOf(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.put(saved, hash, state, now, expires)
}

// decoder reads the content of a block. After the first thing that can not be right it is bad and returns zeros.
type decoder struct {
	b   []byte
	bad bool
}

// bucket reads what appendEntry writes: the key, the rule and the limit of a bucket, its state, and when it expires.
func (d *decoder) bucket() (b bucket.Take, s bucket.State, expires uint32) {
	b.Limit.Algorithm = bucket.Algorithm(d.byte())
	b.Rule = d.uint64()
	b.Limit.Requests, b.Limit.Window, b.Limit.Burst = d.varint(), d.varint(), d.varint()
	until := d.varint()
	s.Last, s.Count, s.Part = d.varint(), d.varint(), d.varint()
	if b.Limit.Algorithm.HasBurst() {
		s.Rate = b.Limit.Requests
	}
	b.Key = string(d.bytes(d.uvarint()))
	at := int64(0)
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		since, cost := d.varint(), d.varint()
		at += since
		s.Grants = append(s.Grants, bucket.Grant{At: at, Cost: cost})
	}
	d.bad = d.bad || b.Limit.Check() != nil || b.Limit.Requests == 0 || until < 1 || until > math.MaxUint32 ||
		s.Empty() || !s.Sound(b.Limit.Algorithm)
	return b, s, uint32(until)
}

func (d *decoder) byte() byte {
	b := d.bytes(1)
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

func (d *decoder) bytes(n uint64) []byte {
	if d.bad || n > uint64(len(d.b)) {
		d.bad = true
		return nil
	}
	head := d.b[:n]
	d.b = d.b[n:]
	return head
}

func (d *decoder) uint64() uint64 {
	b := d.bytes(8)
	if len(b) == 0 {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	d.skip(n)
	return v
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	d.skip(n)
	return v
}

// skip moves on by the length that encoding/binary returns, which is not positive for a number that is cut off or too long.
func (d *decoder) skip(n int) { d.bytes(uint64(max(n, 0))); d.bad = d.bad || n <= 0 }
