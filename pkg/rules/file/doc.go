// Package file reads rules from the YAML files of a directory: the format of envoyproxy/ratelimit with some keys
// more. It finds all mistakes of all files at once and shows each where it is, and it follows the directory.
package file
