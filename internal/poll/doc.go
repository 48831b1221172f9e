// Package poll repeats what has to be looked at again. It follows files: it reads them until two readings agree, and
// reports their bytes. The caller decides what a change means.
package poll
