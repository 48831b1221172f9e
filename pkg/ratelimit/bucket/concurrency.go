package bucket

// concurrency counts nothing: only the holds of a bucket are in its way.
type concurrency struct{}

func (concurrency) roll(_ *Limit, s *State, x int64) { s.Last = x }

func (concurrency) fits(l *Limit, _ *State, n int64) bool { return n <= l.Requests }

func (concurrency) charge(*Limit, *State, int64) {}

func (concurrency) refund(*Limit, *State, int64, int64) {}

func (concurrency) merge(*Limit, *State, *State) (grew bool) { return false }

func (concurrency) used(*Limit, *State) int64 { return 0 }

func (concurrency) wait(*Limit, *State, int64) int64 { return holdWait }

func (concurrency) drain(*Limit, *State) int64 { return 0 }

func (concurrency) sound(s *State, held int64) bool { return held == 0 && s.Count == 0 && s.Part == 0 }

func (concurrency) text(b []byte, _ *State) []byte { return b }

func (concurrency) parse(*State, string) (cut, ok bool) { return false, false }
