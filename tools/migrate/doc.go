// Package migrate converts the limits of other services into rule files: the limits file of Limitador ([Limitador])
// and the routes of Spring Cloud Gateway ([Spring]). What has no equivalent is a problem with its position and the
// steps by hand; the rest is converted. [Ratelimit] lists what changes for rule files of envoyproxy/ratelimit, which
// stay as they are.
package migrate
