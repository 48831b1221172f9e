package loadgen

import "math/bits"

// flights are the requests in flight of a connection, by their streams. Streams are numbered 1, 3, 5, and nearly all
// requests are answered before the streams have gone once around the ring, which costs less than a map.
type flights struct {
	ring  []*request
	late  map[uint32]*request // those whose place in the ring was needed again
	count int
}

func newFlights(most int) flights {
	return flights{ring: make([]*request, 1<<bits.Len(uint(2*most))), late: map[uint32]*request{}}
}

func (f *flights) place(id uint32) **request { return &f.ring[int(id/2)&(len(f.ring)-1)] }

func (f *flights) add(r *request) {
	at := f.place(r.id)
	if *at != nil {
		f.late[(*at).id] = *at
	}
	*at = r
	f.count++
}

// at returns the request of a stream, nil if none is in flight.
func (f *flights) at(id uint32) *request {
	if r := *f.place(id); r != nil && r.id == id {
		return r
	}
	return f.late[id]
}

func (f *flights) remove(r *request) {
	if at := f.place(r.id); *at == r {
		*at = nil
	} else {
		delete(f.late, r.id)
	}
	f.count--
}

// all calls do for each request. do may remove it.
func (f *flights) all(do func(*request)) {
	for _, r := range f.late {
		do(r)
	}
	for _, r := range f.ring {
		if r != nil {
			do(r)
		}
	}
}
