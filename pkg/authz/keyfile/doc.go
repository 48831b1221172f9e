// Package keyfile keeps API keys in a file of JSON Lines. `extauthz keys` writes the file with [Add] and [Change]; a
// [Watcher] of the service follows it.
//
// Each line is a record in JSON. The last line of an id is the valid one. The last line of the file is {"end":true}. A
// change overwrites that line with its own lines and a new end. So a change costs the same in a file of any size, and
// a file that was cut off anywhere is never taken for a complete one. When more than half of the lines are outdated, a
// new file without them replaces the file.
//
// Each line has the version of its change; a later change has a larger version. A running service can therefore detect
// that an older copy of its file was restored, in which a revoked key is still valid.
package keyfile
