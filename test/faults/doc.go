// Package faults has no code, only tests. They run the service, Redis and a proxy between them as real processes and
// sockets, break them under load, and count what was admitted. docs/guarantees.md has the bounds that they check.
package faults
