package authz

// secondHeaders are request headers from which an application may read another path, host or method than those of the
// request line, which decide here. Common frameworks and proxies read each of them, some by default. x-forwarded-for,
// -proto and -port are not in the list: no rule depends on what they replace, and Envoy sets them itself.
var secondHeaders = [...]string{
	// The path.
	"x-original-url", "x-rewrite-url", // IIS and frameworks that run behind it
	"x-original-uri", "x-rewrite-uri", // the same for nginx: auth_request passes the path in it
	"x-override-url", "x-http-path-override", // by analogy with the method, in gateways and frameworks
	"x-forwarded-uri",                        // Traefik and Caddy pass the path in it
	"x-forwarded-path", "x-forwarded-prefix", // Kong; applications put it before the path, or cut it off
	"x-script-name",             // WSGI applications do the same
	"x-original-path", "x-path", // by analogy with x-original-url
	"x-request-uri", "x-uri",
	"x-ms-original-url", "x-waws-unencoded-url", // Azure Static Web Apps and App Service
	"x-invoke-path", "x-matched-path", // Next.js

	// The host.
	"forwarded", "x-forwarded-host", "x-original-host", "x-host", "x-http-host-override",
	"x-forwarded-server", // Jetty takes the host from it

	// The method.
	"x-http-method-override", "x-http-method", "x-method-override",
	"x-original-method", "x-forwarded-method", // with x-original-uri and x-forwarded-uri
	"x-envoy-original-method",

	// The middleware that sees the path: Next.js left it out for requests with this header (CVE-2025-29927).
	"x-middleware-subrequest",
}
