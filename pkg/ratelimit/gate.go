package ratelimit

import "sync/atomic"

// Gate lets the first events of each period pass, such as a second. It takes no lock, so it stays cheap in a flood. Its
// zero value is ready. It is safe for concurrent use.
type Gate struct {
	// state has the period in its upper half, and the events that have passed in it in the lower half.
	state atomic.Uint64
	// LeftOut counts events that did not pass. The caller adds them, and sets it to 0 after it has reported them.
	LeftOut atomic.Uint64
}

// Pass reports whether an event of this period passes. period is its number: for seconds, the Unix time.
func (g *Gate) Pass(period int64, most uint32) bool {
	this := uint64(uint32(period)) << 32
	for {
		state := g.state.Load()
		switch {
		case state>>32<<32 != this:
			if g.state.CompareAndSwap(state, this|1) {
				return true
			}
		case uint32(state) >= most:
			return false
		case g.state.CompareAndSwap(state, state+1):
			return true
		}
	}
}
