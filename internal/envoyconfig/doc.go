// Package envoyconfig compares a configuration of Envoy with rules before it is used: see [Check]. The configuration
// decides whether the upstream gets the identity headers of the service or those of the client. The service cannot see
// the configuration at run time.
package envoyconfig
