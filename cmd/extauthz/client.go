package main

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/suggest"
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
	request := command.AddRequestFlags(flags)
	secured := command.AddTLSFlags(flags)
	flags.DurationVar(&client.Timeout, "timeout", probeTimeout, "maximum wait for the answer")
	output := command.OutputFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *kind != "ratelimit" && *kind != "ext_authz" {
			return command.Usage("--service %q: want ratelimit or ext_authz", *kind)
		}
		call, err := request.Read(*kind == "ext_authz")
		switch {
		case err != nil:
			return err
		case client.Timeout <= 0:
			return command.Usage("--timeout %s: want more than 0, such as 2s", client.Timeout)
		}
		if client.TLS, err = secured.Client(); err != nil {
			return err
		}
		var answer proto.Message
		var text string
		switch call := call.(type) {
		case *authv3.CheckRequest:
			res := new(authv3.CheckResponse)
			err = client.Call(c.Context(), authv3.Authorization_Check_FullMethodName, call, res)
			answer, text = res, checkText(res)
		case *rlsv3.RateLimitRequest:
			res := new(rlsv3.RateLimitResponse)
			err = client.Call(c.Context(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, call, res)
			answer, text = res, rateLimitText(call, res)
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

// rateLimitText returns an answer of a rate limit service in words.
func rateLimitText(req *rlsv3.RateLimitRequest, res *rlsv3.RateLimitResponse) string {
	var b strings.Builder
	fmt.Fprintln(&b, res.GetOverallCode())
	for i, s := range res.GetStatuses() {
		limit, reset := s.GetCurrentLimit(), s.GetDurationUntilReset()
		fmt.Fprintf(&b, "%s: ", descriptorText(req.GetDescriptors()[min(i, len(req.GetDescriptors())-1)]))
		switch {
		case limit != nil:
			window := ""
			if limit.GetUnit() != rlsv3.RateLimitResponse_RateLimit_UNKNOWN { // one of concurrency has none
				units, unit := max(1, limit.GetUnitMultiplier().GetValue()), strings.ToLower(limit.GetUnit().String())
				window = " in " + suggest.Counted(int(units), unit)
			}
			fmt.Fprintf(&b, "%s, %d of %d%s left", s.GetCode(), s.GetLimitRemaining(), limit.GetRequestsPerUnit(), window)
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
		status, word := int(denied.GetStatus().GetCode()), "denied"
		if status == http.StatusOK { // the service itself answers the client: quota_path
			word = "answered"
		}
		fmt.Fprintf(&b, "%s: %d %s\n", word, status, http.StatusText(status))
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

// probeTimeout is shorter than the usual timeout of a container's probe, so that the reason is printed.
const probeTimeout = 2 * time.Second
