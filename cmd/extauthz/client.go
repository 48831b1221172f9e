package main

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz"
)

const clientHelp = `extauthz client sends one call over gRPC, as Envoy does, and prints the answer.
The call counts, except with --hits 0. The exit code is 0 for every answer, 1 without one.
With --service ext_authz it sends a Check. --domain is then optional.`

func (p *program) client() *cobra.Command {
	c := &cobra.Command{
		Use:   "client",
		Short: "Send one request to a rate limit or ext_authz service",
		Long:  clientHelp,
		Example: "  extauthz client --domain shop --descriptor user=ann --descriptor action=buy,user=ann\n" +
			"  extauthz client --address limits:8081 --tls --tls-ca ca.crt --domain shop --descriptor user=ann --hits 0\n" +
			"  extauthz client --service ext_authz --path /v1/users --header @key.txt",
		Args: command.NoArguments(""),
	}
	client := service.Client{}
	flags := c.Flags()
	flags.StringVar(&client.Address, "address", "localhost:8081", "`HOST:PORT` of the service, or unix:PATH")
	kind := flags.String("service", "ratelimit", "the service: ratelimit or ext_authz")
	req := new(rlsv3.RateLimitRequest)
	flags.StringVar(&req.Domain, "domain", "", "`DOMAIN` of the rules")
	flags.Func("descriptor", "ratelimit: a descriptor, as `KEY=VALUE,...`; may be repeated",
		command.DescriptorTo(&req.Descriptors))
	flags.Uint32Var(&req.HitsAddend, "hits", 1, "ratelimit: how many hits the request counts as; 0 charges nothing")
	method := flags.String("method", "GET", "ext_authz: `METHOD` of the request")
	host := flags.String("host", "localhost", "ext_authz: `HOST` of the request")
	path := flags.String("path", "/", "ext_authz: `PATH` of the request")
	source := flags.String("source", "127.0.0.1", "ext_authz: `IP` address of the client")
	list := flags.StringArray("header", nil, "ext_authz: a header, as `NAME:VALUE`, or @FILE with one a line; may be "+
		"repeated")
	secured := command.AddTLSFlags(flags)
	flags.DurationVar(&client.Timeout, "timeout", probeTimeout, "maximum wait for the answer")
	output := command.OutputFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		check := *kind == "ext_authz"
		headers, err := command.Headers(*list)
		switch {
		case err != nil:
			return err
		case !check && *kind != "ratelimit":
			return command.Usage("--service %q: want ratelimit or ext_authz", *kind)
		case check && req.Descriptors != nil:
			return command.Usage("--descriptor needs --service ratelimit")
		case !check && len(headers) > 0:
			return command.Usage("--header needs --service ext_authz")
		case !check && req.Domain == "":
			return command.Usage("missing --domain DOMAIN")
		case !check && req.Descriptors == nil:
			return command.Usage("missing --descriptor KEY=VALUE,...")
		case client.Timeout <= 0:
			return command.Usage("--timeout %s: want more than 0, such as 2s", client.Timeout)
		}
		if client.TLS, err = secured.Client(); err != nil {
			return err
		}
		var answer proto.Message
		var text string
		if check {
			res := new(authv3.CheckResponse)
			err = client.Call(c.Context(), authv3.Authorization_Check_FullMethodName,
				checkRequest(req.Domain, *source, &authv3.AttributeContext_HttpRequest{
					Method: *method, Host: *host, Path: *path, Scheme: "http", Protocol: "HTTP/1.1", Headers: headers,
				}), res)
			answer, text = res, checkText(res)
		} else {
			if req.HitsAddend == 0 { // a request without hits counts as one; only a descriptor can have none
				for _, d := range req.Descriptors {
					d.HitsAddend = wrapperspb.UInt64(0)
				}
			}
			res := new(rlsv3.RateLimitResponse)
			err = client.Call(c.Context(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, req, res)
			answer, text = res, rateLimitText(req, res)
		}
		if err != nil {
			return err
		}
		if output.Word == "json" {
			text = protojson.Format(answer) + "\n"
		}
		_, err = fmt.Fprint(p.Stdout, text)
		return err
	}
	return c
}

// checkRequest returns a request of Envoy's filter ext_authz. Envoy also sends method, host and path as headers.
func checkRequest(domain, source string, r *authv3.AttributeContext_HttpRequest) *authv3.CheckRequest {
	r.Headers[":method"], r.Headers[":authority"], r.Headers[":path"] = r.GetMethod(), r.GetHost(), r.GetPath()
	a := &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: source},
		}}},
		Request: &authv3.AttributeContext_Request{Http: r},
	}
	if domain != "" {
		a.ContextExtensions = map[string]string{authz.DomainExtension: domain}
	}
	return &authv3.CheckRequest{Attributes: a}
}

// rateLimitText returns an answer of a rate limit service in words.
func rateLimitText(req *rlsv3.RateLimitRequest, res *rlsv3.RateLimitResponse) string {
	var b strings.Builder
	fmt.Fprintln(&b, res.GetOverallCode())
	for i, s := range res.GetStatuses() {
		limit, reset := s.GetCurrentLimit(), s.GetDurationUntilReset()
		fmt.Fprintf(&b, "%s: ", descriptorText(req.GetDescriptors()[min(i, len(req.GetDescriptors())-1)]))
		switch {
		case limit != nil:
			units, unit := max(1, limit.GetUnitMultiplier().GetValue()), strings.ToLower(limit.GetUnit().String())
			fmt.Fprintf(&b, "%s, %d of %d in %s left", s.GetCode(), s.GetLimitRemaining(), limit.GetRequestsPerUnit(),
				suggest.Counted(int(units), unit))
		case s.GetLimitRemaining() == math.MaxUint32:
			fmt.Fprintf(&b, "%s, unlimited", s.GetCode())
		case s.GetCode() == rlsv3.RateLimitResponse_OK && reset == nil:
			b.WriteString("no rule matches, so the request passes")
		default:
			b.WriteString(s.GetCode().String())
		}
		if reset != nil {
			fmt.Fprintf(&b, ", until reset %s", reset.AsDuration())
		}
		if name := limit.GetName(); name != "" {
			fmt.Fprintf(&b, " (%s)", name)
		}
		b.WriteByte('\n')
	}
	for _, h := range res.GetResponseHeadersToAdd() {
		writeHeader(&b, "", h)
	}
	return b.String()
}

// descriptorText returns a descriptor in the form of the flag.
func descriptorText(d *ratelimitv3.RateLimitDescriptor) string {
	var pairs []string
	for _, e := range d.GetEntries() {
		pairs = append(pairs, e.GetKey()+"="+e.GetValue())
	}
	return strings.Join(pairs, ",")
}

// checkText returns an answer of ext_authz in words, with the headers for the upstream or the client.
func checkText(res *authv3.CheckResponse) string {
	var b strings.Builder
	if denied := res.GetDeniedResponse(); res.GetStatus().GetCode() != int32(codes.OK) {
		fmt.Fprintf(&b, "denied: %d %s\n", denied.GetStatus().GetCode(), http.StatusText(int(denied.GetStatus().GetCode())))
		for _, h := range denied.GetHeaders() {
			writeHeader(&b, "", h.GetHeader())
		}
		if body := denied.GetBody(); body != "" {
			fmt.Fprintf(&b, "\n%s\n", body)
		}
		return b.String()
	}
	b.WriteString("allowed\n")
	for _, h := range res.GetOkResponse().GetHeaders() {
		writeHeader(&b, "to the upstream: ", h.GetHeader())
	}
	for _, h := range res.GetOkResponse().GetResponseHeadersToAdd() {
		writeHeader(&b, "to the client: ", h.GetHeader())
	}
	return b.String()
}

func writeHeader(b *strings.Builder, to string, h *corev3.HeaderValue) {
	fmt.Fprintf(b, "%s%s: %s\n", to, h.GetKey(), cmp.Or(h.GetValue(), string(h.GetRawValue())))
}
