package h2unary

import "golang.org/x/net/http2/hpack"

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
