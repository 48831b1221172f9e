package authz

import "slices"

// overrideHeaders are request headers by which an application may take another path, host or method for the one of the
// request line, which is the one that rules of access and limits are decided by. All of them are read by common
// frameworks, some without being configured to. x-forwarded-for, -proto and -port are not among them: they replace
// nothing that is decided by, and Envoy sets them itself.
var overrideHeaders = [...]string{
	"x-original-url", "x-rewrite-url", "x-forwarded-prefix",
	"forwarded", "x-forwarded-host", "x-original-host", "x-host", "x-http-host-override",
	"x-http-method-override", "x-http-method", "x-method-override",
}

// OverrideHeaders returns the headers that are removed from every request unless the policy keeps them.
func OverrideHeaders() []string { return slices.Clone(overrideHeaders[:]) }
