package replay

import (
	"context"
	"fmt"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/tools/compatibility"
	"github.com/extauthz/extauthz/tools/migrate"
)

// Config configures a comparison.
type Config struct {
	// Old and New are the addresses of rate limit services, host:port or unix:PATH, or the URLs of gateways.
	Old, New string
	// Progress receives the number of requests that were sent to both. Optional.
	Progress func(sent int)

	// Domains are the rules of both services. They show where several wildcards match. Optional.
	Domains []ratelimit.Domain
	// Strict means that New runs with COMPATIBILITY=strict: then the rows that it turns off list no difference.
	Strict bool
	// Gateway has the routes of the old gateway. They show why answers differ. CompareHTTP needs it.
	Gateway migrate.SpringGateway
}

// Report is the result of a comparison.
type Report struct {
	// Sent is how many requests each service has answered, Same how many of them got equal answers.
	Sent int `json:"sent"`
	Same int `json:"same"`
	// Listed and Unlisted are how many differences have a row in the docs, and how many have none.
	Listed   int `json:"listed"`
	Unlisted int `json:"unlisted"`
	// Differences are all differences, in the order of the requests.
	Differences []Difference `json:"differences"`
	// Bare means that the old service sends no statuses, so that only verdicts were compared.
	Bare bool `json:"old_sends_no_statuses,omitempty"`
}

// Difference is one difference between two answers.
type Difference struct {
	// Request is the number of the request, from 1.
	Request int `json:"request"`
	// Subject is the descriptor, as domain: key=value,key=value, or all of them for a verdict. Of an HTTP request, it is
	// the method and the path.
	Subject string `json:"subject"`
	// What is `verdict`, `code`, `limit`, `remaining` or `reset`, for HTTP `status`, `headers` or a header.
	What string `json:"what"`
	Old  string `json:"old"`
	New  string `json:"new"`
	// Row is the row of the docs that lists the difference, "" for none.
	Row compatibility.Row `json:"row,omitempty"`
}

// callTimeout bounds one call.
const callTimeout = 5 * time.Second

// Compare sends requests to both services, one after the other, and compares the answers. It ends early with an error
// if a service does not answer or the context is done; the report then has what was compared until then.
func Compare(ctx context.Context, cfg Config, requests []*Request) (*Report, error) {
	older, err := dial(cfg.Old)
	if err != nil {
		return new(Report), err
	}
	defer older.close()
	newer, err := dial(cfg.New)
	if err != nil {
		return new(Report), err
	}
	defer newer.close()
	judge := newJudge(cfg)
	report, err := replay(ctx, requests, older.call, newer.call, judge.compare, cfg.Progress)
	report.Bare = judge.bare
	return report, err
}

// replay sends requests to both services, one after the other, and reports what the judge finds in their answers.
func replay[Request, Answer any](ctx context.Context, requests []Request,
	older, newer func(context.Context, Request) (Answer, error),
	judge func(number int, r Request, older, newer Answer) []Difference, progress func(sent int),
) (*Report, error) {
	report := &Report{Differences: []Difference{}}
	for i, r := range requests {
		before, err := older(ctx, r)
		if err != nil {
			return report, err
		}
		after, err := newer(ctx, r)
		if err != nil {
			return report, err
		}
		report.Sent++
		report.add(judge(i+1, r, before, after))
		if progress != nil {
			progress(report.Sent)
		}
	}
	return report, nil
}

func (r *Report) add(found []Difference) {
	if len(found) == 0 {
		r.Same++
	}
	for _, d := range found {
		if d.Row == "" {
			r.Unlisted++
		} else {
			r.Listed++
		}
	}
	r.Differences = append(r.Differences, found...)
}

// service is a connection to a service.
type service struct {
	address string
	conn    *grpc.ClientConn
	client  ratelimitv3.RateLimitServiceClient
}

func dial(address string) (*service, error) {
	target := address
	if !strings.HasPrefix(address, "unix:") {
		target = "passthrough:///" + address
	}
	// The two services are never behind the proxy of the environment.
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return &service{address, conn, ratelimitv3.NewRateLimitServiceClient(conn)}, nil
}

func (s *service) close() { _ = s.conn.Close() } // no call is in flight

// answer is the response of a service, or the code of its error.
type answer struct {
	*ratelimitv3.RateLimitResponse
	code codes.Code
}

// call sends a request. An error of the service is an answer. It is an error of call that there is none.
func (s *service) call(ctx context.Context, r *Request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := s.client.ShouldRateLimit(ctx, r)
	switch code := status.Code(err); code {
	case codes.OK:
		return answer{RateLimitResponse: response}, nil
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unimplemented:
		return answer{}, fmt.Errorf("%s does not answer: %s", s.address, status.Convert(err).Message())
	default:
		return answer{code: code}, nil
	}
}
