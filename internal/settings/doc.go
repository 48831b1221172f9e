// Package settings reads the environment variables of the service into plain data. [Read] reports all mistakes at once.
// Nothing here opens, listens or connects.
package settings
