// Package poll repeats what has to be looked at again: above all files, until two readings agree.
package poll
