package redisstore

// Gathered returns the number of calls that wait to be sent.
func (s *Store) Gathered() int {
	s.main.one.lane.mu.Lock()
	defer s.main.one.lane.mu.Unlock()
	return len(s.main.one.lane.queue)
}
