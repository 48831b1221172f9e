package memstore

// note is what a Held has beside an entry. It is a cache line of 64 bytes, too.
type note struct {
	Note
	ahead int64
	// extra is the number of Held.Extra in notes.extras, 0 for none.
	extra uint32
}

// notes are the notes of a table, by slot. A store without Edit has none.
type notes struct {
	chunks[note]
	extras pool[any]
}

// at returns the note of a slot, nil if no slot near it ever had one.
func (ns *notes) at(slot uint32) *note {
	if !ns.has(slot) {
		return nil
	}
	return ns.chunks.at(slot)
}

// set keeps the note of a bucket.
func (ns *notes) set(slot uint32, h *Held) {
	ns.reach(slot)
	n := ns.at(slot)
	n.Note, n.ahead = h.Note, h.Ahead
	switch {
	case n.extra == 0 && h.Extra != nil:
		n.extra = ns.extras.add(h.Extra)
	case n.extra != 0 && h.Extra != nil:
		*ns.extras.at(n.extra) = h.Extra
	case n.extra != 0:
		ns.extras.remove(n.extra)
		n.extra = 0
	}
}

// remove drops the note of a slot, if there is one.
func (ns *notes) remove(slot uint32) {
	n := ns.at(slot)
	if n == nil {
		return
	}
	if n.extra != 0 {
		ns.extras.remove(n.extra)
	}
	*n = note{}
}
