// Package service builds the service from its settings, and runs it: listeners, servers, stores, rules and keys, their reloads, and the
// drain at the end.
package service
