// Package storetest is the conformance suite of stores. A store that passes it decides exactly as every other store,
// and charges all buckets of a request or none.
package storetest
