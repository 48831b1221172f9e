// Package compatibility names the rows of docs/compatibility.md, so that commands can refer to them.
package compatibility
