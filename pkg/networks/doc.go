// Package networks finds the network of an address in named lists of prefixes: the one with the longest prefix.
package networks
