package command

import (
	"fmt"
	"os"
	"strings"
	"unicode"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/extauthz/extauthz/internal/certs"
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

// TLSFlags are the flags of a connection to a service.
type TLSFlags struct {
	on    bool
	files certs.ClientFiles
}

// AddTLSFlags adds the flags of a connection to a service.
func AddTLSFlags(flags *pflag.FlagSet) *TLSFlags {
	f := &TLSFlags{}
	flags.BoolVar(&f.on, "tls", false, "connect with TLS")
	flags.StringVar(&f.files.CA, "tls-ca", "", "`FILE` of the CA of the service; default: the CAs of the system")
	flags.StringVar(&f.files.Cert, "tls-cert", "", "`FILE` of the certificate of this client")
	flags.StringVar(&f.files.Key, "tls-key", "", "`FILE` of the key of that certificate")
	flags.StringVar(&f.files.ServerName, "tls-name", "", "`NAME` in the certificate of the service; default: the host of "+
		"--address")
	return f
}

// Client returns the files of the connection, nil for plaintext.
func (f *TLSFlags) Client() (*certs.ClientFiles, error) {
	switch {
	case (f.files.Cert == "") != (f.files.Key == ""):
		return nil, Usage("--tls-cert and --tls-key: set both or none")
	case !f.on && f.files.CA+f.files.Cert+f.files.Key+f.files.ServerName != "":
		return nil, Usage("--tls-ca, --tls-cert, --tls-key and --tls-name need --tls")
	case !f.on:
		return nil, nil //nolint:nilnil // nil is plaintext
	}
	return &f.files, nil
}

// Headers reads the values of a flag for headers: NAME:VALUE, or @FILE with one a line.
func Headers(list []string) (map[string]string, error) {
	headers := map[string]string{}
	for _, lines := range list {
		if name, ok := strings.CutPrefix(lines, "@"); ok {
			content, err := os.ReadFile(name)
			if err != nil {
				return nil, Usage("--header: %w", err)
			}
			lines = strings.TrimSpace(string(content))
		}
		for line := range strings.Lines(lines) {
			name, value, found := strings.Cut(strings.TrimSpace(line), ":")
			value = strings.TrimSpace(value)
			if !found || name == "" || strings.ContainsFunc(name+value, unicode.IsControl) {
				return nil, Usage("--header: want NAME:VALUE, or @FILE with one a line")
			}
			headers[strings.ToLower(name)] = value
		}
	}
	return headers, nil
}

// DescriptorTo returns the setter of a flag that appends a descriptor to a list.
func DescriptorTo(list *[]*ratelimitv3.RateLimitDescriptor) func(text string) error {
	return func(text string) error {
		d, err := Descriptor(text)
		*list = append(*list, d)
		return err
	}
}

// Descriptor reads a descriptor in the form KEY=VALUE,...
func Descriptor(text string) (*ratelimitv3.RateLimitDescriptor, error) {
	d := new(ratelimitv3.RateLimitDescriptor)
	for pair := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(pair, "=")
		if !found || key == "" {
			return nil, fmt.Errorf("want KEY=VALUE, or several with commas, not %q", pair)
		}
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d, nil
}
