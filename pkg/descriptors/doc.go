// Package descriptors holds Envoy's description of what is limited as plain values. A request names a domain and has
// descriptors; a descriptor is a list of [Entry] values. A [Tree] of patterns finds the rule of a descriptor.
package descriptors
