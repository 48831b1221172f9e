// Package envoyconfig compares a configuration of Envoy with policies, before it is used. The configuration decides
// whether the identity headers of a policy are those of the service or those of the client, and the service cannot
// see it.
package envoyconfig
