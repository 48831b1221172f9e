// Package texts keeps texts in memory that is used again, so that a request allocates none. Only this package turns
// bytes into texts without a copy. See [View] and [Reset].
package texts
