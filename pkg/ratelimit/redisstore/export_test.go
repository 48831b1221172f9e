package redisstore

// Gathered returns the number of calls that wait to be sent.
func (s *Store) Gathered() int {
	s.node.lane.mu.Lock()
	defer s.node.lane.mu.Unlock()
	return len(s.node.lane.queue)
}
