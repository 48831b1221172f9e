// Package inspect has the answers to questions of operators about a running service. Each is one Go value, which a
// command prints as text or JSON, and which the debug listener returns as JSON.
package inspect
