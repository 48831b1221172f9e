package redisstore

// Gathered returns the number of calls that wait to be sent.
func (s *Store) Gathered() int {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	return len(s.lane.queue)
}
