// Package keyfile keeps API keys in a file of JSON Lines, which `extauthz keys` writes and the service follows.
//
// A line is a record in JSON. The newest line of an id, the one that is further down, holds. The last line is
// {"end":true}: each change puts its lines and a new last line in its place, so that a change costs the same in a
// file of any size, and a file that was cut off anywhere is never taken for a complete one. When more than half of
// the lines are outdated, a new file with the others replaces the file.
//
// Each line has the version of its change, and a larger version is a later change. A service that runs therefore
// finds out that an older copy of its file was put back, in which a revoked key is still valid.
package keyfile
