package authz

// lookalikes finds headers such as x_owner and x.owner if x-owner is set, removed or kept. Many servers pass headers to
// programs as variables (CGI, PHP, WSGI, Rack). Their names have the same character for all but letters and digits. A
// proxy that sets a kept header replaces it only in its own spelling.
type lookalikes struct {
	ours map[string]bool // the headers that are set, removed or kept
	// folded are their names in the form of appendFolded. ends has a bit for the last character of each of them, by its
	// length: almost no other header needs a look into the map.
	folded map[string]bool
	ends   [64]uint64
}

func newLookalikes(names []string) lookalikes {
	l := lookalikes{ours: map[string]bool{}, folded: map[string]bool{}}
	for _, name := range names {
		if name == "" { // no header
			continue
		}
		folded := appendFolded(nil, name)
		l.ours[name], l.folded[string(folded)] = true, true
		l.ends[len(name)%64] |= 1 << (folded[len(name)-1] % 64)
	}
	return l
}

// has reports whether a header looks like one of ours, but is none.
func (l *lookalikes) has(name string) bool {
	if name == "" || l.ends[len(name)%64]&(1<<(fold(name[len(name)-1])%64)) == 0 {
		return false
	}
	var onStack [64]byte
	return !l.ours[name] && l.folded[string(appendFolded(onStack[:0], name))]
}

// appendFolded appends the name of a header in a form that all its lookalikes share.
func appendFolded(to []byte, name string) []byte {
	for i := range len(name) {
		to = append(to, fold(name[i]))
	}
	return to
}

func fold(c byte) byte {
	if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
		return '_'
	}
	return c
}
