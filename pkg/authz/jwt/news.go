package jwt

// Reading is how a reading of keys went.
type Reading struct {
	// Source is the path or URL.
	Source string
	// Keys is how many keys are trusted now; Skipped how many of the document can not be used: of kinds not known here, private,
	// weak, or for encryption.
	Keys, Skipped int
	// Err is why they could not be read; those before stay in force. Nil for a success.
	Err error
}

// news tells readings that are worth a line in a log from those that went as the one before.
type news struct {
	source  string
	version version
	err     string
	told    bool
}

// of returns the reading that has led to these keys, or to an error; ok is false when that is no news.
func (n *news) of(good *goodKeys, err error) (r Reading, ok bool) {
	r = Reading{Source: n.source, Err: err}
	next := news{source: n.source, told: true}
	if good != nil {
		r.Keys, r.Skipped = len(good.set.keys), good.set.skipped
		next.version = good.set.version
	}
	if err != nil {
		next.err = err.Error()
	}
	ok = next != *n
	*n = next
	return r, ok
}
