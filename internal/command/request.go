package command

import (
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/extauthz/extauthz/internal/inspect"
)

// RequestFlags are the flags of a request to one of the two services.
type RequestFlags struct {
	limit   *rlsv3.RateLimitRequest
	check   *authv3.AttributeContext_HttpRequest
	source  string
	headers []string
}

// AddRequestFlags adds the flags of a request.
func AddRequestFlags(flags *pflag.FlagSet) *RequestFlags {
	r := &RequestFlags{limit: new(rlsv3.RateLimitRequest), check: &authv3.AttributeContext_HttpRequest{
		Scheme: "http", Protocol: "HTTP/1.1",
	}}
	flags.StringVar(&r.limit.Domain, "domain", "", "`DOMAIN` of the rules")
	flags.Func("descriptor", "ratelimit: a descriptor, as `KEY=VALUE,...`; may be repeated",
		DescriptorTo(&r.limit.Descriptors))
	flags.Uint32Var(&r.limit.HitsAddend, "hits", 1,
		"ratelimit: how many hits the request counts as; 0 charges nothing")
	flags.StringVar(&r.check.Method, "method", "GET", "ext_authz: `METHOD` of the request")
	flags.StringVar(&r.check.Host, "host", "localhost", "ext_authz: `HOST` of the request")
	flags.StringVar(&r.check.Path, "path", "/", "ext_authz: `PATH` of the request")
	flags.StringVar(&r.source, "source", "127.0.0.1", "ext_authz: `IP` address of the client")
	flags.StringArrayVar(&r.headers, "header", nil,
		"ext_authz: a header, as `NAME:VALUE`, or @FILE with one a line; may be repeated")
	return r
}

// IsCheck reports whether the request has no descriptor, so that it is one to ext_authz.
func (r *RequestFlags) IsCheck() bool { return r.limit.Descriptors == nil }

// Read returns the request: an *authv3.CheckRequest for a check, else an *rlsv3.RateLimitRequest.
func (r *RequestFlags) Read(check bool) (proto.Message, error) {
	headers, err := Headers(r.headers)
	switch {
	case err != nil:
		return nil, err
	case check && r.limit.Descriptors != nil:
		return nil, Usage("--descriptor is for the service ratelimit, not for ext_authz")
	case !check && len(headers) > 0:
		return nil, Usage("--header is for the service ext_authz, not for ratelimit")
	case !check && r.limit.Domain == "":
		return nil, Usage("missing --domain DOMAIN")
	case !check && r.limit.Descriptors == nil:
		return nil, Usage("missing --descriptor KEY=VALUE,...")
	case check:
		r.check.Headers = headers
		return inspect.CheckRequest(r.limit.Domain, r.source, r.check), nil
	}
	if r.limit.HitsAddend == 0 { // a request without hits counts as one; only a descriptor can have none
		for _, d := range r.limit.Descriptors {
			d.HitsAddend = wrapperspb.UInt64(0)
		}
	}
	return r.limit, nil
}
