package testenv

import "testing"

// TestFreePort: a port is given to one test at a time, and to another one afterwards.
func TestFreePort(t *testing.T) {
	given := map[int]bool{}
	t.Run("while the test runs", func(t *testing.T) {
		for range 500 {
			port := FreePort(t)
			if given[port] {
				t.Fatalf("port %d was given twice", port)
			}
			given[port] = true
			if reserve(t, port) {
				t.Fatalf("port %d was given, and is not reserved", port)
			}
		}
	})
	for port := range given {
		if reserve(t, port) {
			return
		}
	}
	t.Errorf("%d ports are still reserved after their test", len(given))
}
