package h2unary

import "golang.org/x/net/http2/hpack"

// maxTable is the size of the dynamic table of both sides, the default of SETTINGS_HEADER_TABLE_SIZE.
const maxTable = 4096

// table is the dynamic table of one direction (RFC 7541, 2.3.2).
type table struct {
	fields []field // The oldest field is the first.
	first  int     // The fields before it have been evicted.
	size   int
	limit  int
}

// at returns the field of an index, from 1.
func (t *table) at(index uint64) (*field, error) {
	if index > 0 && index <= staticFields {
		return &staticTable[index], nil
	}
	index -= staticFields // 0 becomes larger than any index
	if index > uint64(len(t.fields)-t.first) {
		return nil, errBlock
	}
	return &t.fields[len(t.fields)-int(index)], nil
}

// insert adds a copy of a field. A field that is larger than the table empties it. The name may be that of a field that
// is evicted. The memory of the last evicted field is reused, from its name on, unless it is much more than is needed:
// small fields would keep the memory of large ones.
func (t *table) insert(f field) {
	size := f.size()
	room := t.evict(t.limit - size)
	if size > t.limit {
		return
	}
	if cap(room) > 2*size {
		room = nil
	}
	text := append(append(room[:0], f.name...), f.value...)
	f.name, f.value = text[:len(f.name)], text[len(f.name):]
	if t.first > 0 && len(t.fields) == cap(t.fields) {
		n := copy(t.fields, t.fields[t.first:])
		clear(t.fields[n:])
		t.fields, t.first = t.fields[:n], 0
	}
	t.fields = append(t.fields, f)
	t.size += size
}

// evict removes the oldest fields until the rest has at most this size. It returns the memory of the last one.
func (t *table) evict(most int) (room []byte) {
	for t.size > max(0, most) {
		f := &t.fields[t.first]
		t.size -= f.size()
		room = f.name // The capacity of the name includes the value.
		*f = field{}
		t.first++
	}
	return room
}

// resize changes the limit (RFC 7541, 6.3).
func (t *table) resize(limit int) {
	t.limit = limit
	t.evict(limit)
}

// staticFields is the number of fields of the static table. The first index of the dynamic table follows.
const staticFields = 61

// staticTable is the static table (RFC 7541, Appendix A), as x/net decodes its indexes. Index 0 is not used.
var staticTable = readStaticTable()

func readStaticTable() []field {
	table := make([]field, 1, staticFields+1)
	decoder := hpack.NewDecoder(0, func(f hpack.HeaderField) {
		table = append(table, newField([]byte(f.Name), []byte(f.Value)))
	})
	for i := range byte(staticFields) {
		if _, err := decoder.Write([]byte{isIndexed | (i + 1)}); err != nil {
			panic(err) // a test of the package would not start
		}
	}
	return table
}
