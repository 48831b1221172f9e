// Package doctor finds mistakes around a service: in a configuration of Envoy (see [Load]), in a running Envoy (see
// [Configuration.Examine]) and in Redis (see [ExamineRedis]). The configuration decides whether the upstream gets the
// identity headers of the service or those of the client. The service cannot see the configuration at run time.
package doctor
