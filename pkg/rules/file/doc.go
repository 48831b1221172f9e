// Package file reads rules from YAML files: the format of envoyproxy/ratelimit with more keys. [Parse] and [Check]
// report all mistakes of all files at once, each at its position. A [Watcher] follows the files of a directory.
package file
