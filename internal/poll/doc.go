// Package poll runs a function at an interval until a context is done. Watchers of files also run it on request.
package poll
