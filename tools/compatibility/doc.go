// Package compatibility names rows in which pages of docs compare the service with others, so that commands can refer
// to them.
package compatibility
