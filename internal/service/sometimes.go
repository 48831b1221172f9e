package service

import (
	"sync"
	"time"
)

// sayEvery is how often the log repeats a line that requests can cause.
const sayEvery = time.Minute

// sometimes says when to log what can happen at any rate: once a minute for each key, of which there must be few. The zero value
// is ready, and safe for concurrent use.
type sometimes struct {
	mu   sync.Mutex
	said map[string]time.Time
}

// now reports whether to log key now.
func (s *sometimes) now(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.said[key]; ok && time.Since(last) < sayEvery {
		return false
	}
	if s.said == nil {
		s.said = make(map[string]time.Time)
	}
	s.said[key] = time.Now()
	return true
}
