package bucket

import "time"

// Seen is what the answer of a shared store showed of a bucket. Another process may change the bucket meanwhile.
type Seen struct {
	// State is the bucket after the decision, at Clock.
	State State
	// Reply has a Clock of 0 if the store did not read the bucket, because Limit.Requests is 0.
	Reply
	// Floor is what became of the Take.Floor.
	Floor Fate
	// Cut means that State is a log of which the store has sent only the oldest part. All other units are in the newest
	// of its Grants, although they may be older: as old as the Grant before it.
	Cut bool
}

// Reply is when a shared store decided a batch of requests.
type Reply struct {
	// Clock is the time of the decision by the store's clock, in µs since 1970.
	Clock int64
	// Sent is a time before the request was sent, and Received a time after the answer was read. Both have a monotonic
	// clock.
	Sent, Received time.Time
}

// Floor is a state that a bucket is known to have had. A take carries it to a store that may have lost the state.
type Floor struct {
	// State is the state, as in Seen. Another replica may have settled its holds, so their expiry charges nothing.
	State State
	// Unsent are holds that the store does not have yet.
	Unsent *Holds
	// At is the Seen.Clock of the answer that showed it.
	At int64
	// Cut is Seen.Cut.
	Cut bool
}

// Fate is what became of the floor of a take.
type Fate uint8

// The fates. The script counts them in the same way.
const (
	// FloorUnsent means that the take had no floor, or that its slot of a cluster is moving: the floor is still needed.
	FloorUnsent Fate = iota
	// FloorJoined means that the bucket holds the floor now.
	FloorJoined
	// FloorVoided means that a refund is newer than the floor, which is not needed any more.
	FloorVoided
	// FloorUnusable means that the floor was unreadable, or its clock far ahead. It was ignored.
	FloorUnusable
)

// Origin is what decided a request.
type Origin uint8

const (
	// FromStore means that the store decided.
	FromStore Origin = iota
	// FromLastKnown means that the last known states of the buckets decided, because a shared store could not.
	FromLastKnown
	// FromDenialCache means that the last known state of a bucket denied the request without the shared store.
	FromDenialCache
	// FromLease means that units which were charged to the shared store before have been used.
	FromLease
)
