package testenv

import "testing"

// TestFreePort checks that a port is reserved for one test, and is free again after that test.
func TestFreePort(t *testing.T) {
	given := map[int]bool{}
	t.Run("while the test runs", func(t *testing.T) {
		for range 500 {
			port := FreePort(t)
			if given[port] {
				t.Fatalf("port %d was returned twice", port)
			}
			given[port] = true
			if reserve(t, port) {
				t.Fatalf("port %d was returned but is not reserved", port)
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
