package authz

// overrideHeaders are request headers by which an application may take another path, host or method for the one of the
// request line, which is the one that rules of access and limits are decided by. All of them are read by common
// frameworks and proxies, some without being configured to. x-forwarded-for, -proto and -port are not among them: they
// replace nothing that is decided by, and Envoy sets them itself.
var overrideHeaders = [...]string{
	// The path.
	"x-original-url", "x-rewrite-url", // IIS and frameworks that run behind it
	"x-original-uri", "x-rewrite-uri", // the same for nginx: auth_request passes the path on so
	"x-override-url", "x-http-path-override", // by analogy with the method, in gateways and frameworks
	"x-forwarded-uri",                        // Traefik and Caddy pass the path on so
	"x-forwarded-path", "x-forwarded-prefix", // Kong; applications put it before the path, or cut it off
	"x-script-name", // WSGI applications, likewise

	// The host.
	"forwarded", "x-forwarded-host", "x-original-host", "x-host", "x-http-host-override",
	"x-forwarded-server", // Jetty takes the host from it

	// The method.
	"x-http-method-override", "x-http-method", "x-method-override",
	"x-original-method", "x-forwarded-method", // with x-original-uri and x-forwarded-uri
}
