package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	// pingInterval is how often an idle connection is checked. A gRPC server accepts one ping in 5 minutes by default.
	pingInterval = 6 * time.Minute
	pingTimeout  = 20 * time.Second
	// logInterval is how often a lasting outage is logged.
	logInterval = time.Minute

	defaultConnect    = 3 * time.Second
	defaultBackoff    = 10 * time.Second
	defaultMaxBackoff = time.Minute
	defaultMessage    = 4 << 20
)

// Backoff is how long to wait before the next of several streams that fail. The time doubles from Initial to Max.
type Backoff struct {
	Initial, Max time.Duration
	// Jitter is by which share of the time the wait differs at random, 0 to 1.
	Jitter float64
}

// wait returns the time before the attempt after so many failures.
func (b Backoff) wait(failures int) time.Duration {
	doubled := math.Ldexp(float64(b.Initial), failures) // it may be infinite
	return jittered(time.Duration(min(doubled, float64(b.Max))), b.Jitter)
}

// jittered returns a time that differs from d by at most a share of it.
func jittered(d time.Duration, share float64) time.Duration {
	share = min(max(share, 0), 1)
	return d + time.Duration(float64(d)*share*(2*rand.Float64()-1))
}

// follow delivers the messages of the server until ctx is done. It connects again after each failure.
func (c *Client) follow(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		opened, delivered, err := c.connection(ctx)
		if ctx.Err() != nil {
			return
		}
		message, wait := "cannot connect to the xDS server", jittered(c.cfg.ConnectInterval, 0.5)
		if opened {
			if message = "the xDS server has ended the stream"; delivered {
				failures = 0
			}
			wait = c.cfg.Backoff.wait(failures)
			failures++
		}
		c.logFailure(message, delivered, err, wait)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// logFailure logs the end of a stream that worked as information, and an outage as a warning, once a minute.
func (c *Client) logFailure(message string, worked bool, err error, wait time.Duration) {
	attrs := []any{"error", err, "retry_in", wait.Round(time.Millisecond)}
	switch {
	case worked:
		c.cfg.Log.Info(message+"; the rules stay as they are", attrs...)
	case time.Since(c.warned) >= logInterval:
		c.warned = time.Now()
		c.cfg.Log.Warn(message+"; the rules stay as they are (logged once a minute)", attrs...)
	}
}

// logConnected logs a new stream, as a warning if an outage was logged.
func (c *Client) logConnected() {
	level := slog.LevelInfo
	if !c.warned.IsZero() {
		level, c.warned = slog.LevelWarn, time.Time{}
	}
	c.cfg.Log.Log(context.Background(), level, "connected to the xDS server")
}

// connection opens a connection and a stream, and delivers messages until one of them ends. Each connection has its own
// TLS configuration, with renewed certificates. opened means that there was a stream, delivered a message.
func (c *Client) connection(ctx context.Context) (opened, delivered bool, err error) {
	conn, err := dial(&c.cfg)
	if err != nil {
		return false, false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, metadata.New(c.cfg.Headers)))
	defer cancel()
	desc := &grpc.StreamDesc{StreamName: "StreamAggregatedResources", ServerStreams: true, ClientStreams: true}
	grpcStream, err := conn.NewStream(ctx, desc, method)
	if err != nil {
		return false, false, readable(err)
	}
	s := &stream{grpc: grpcStream}
	s.send(subscription(c.cfg.Node))
	c.open.Store(true)
	defer c.open.Store(false)
	for {
		var message string
		if err := grpcStream.RecvMsg(&message); err != nil {
			return true, delivered, readable(err)
		}
		if !delivered {
			c.logConnected()
		}
		select {
		case <-ctx.Done():
			return true, delivered, ctx.Err()
		case c.received <- delivery{message, s}:
			delivered = true
		}
	}
}

// readable returns an error of gRPC as a sentence.
func readable(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("end of the stream")
	}
	s := status.Convert(err)
	if s.Code() == codes.ResourceExhausted {
		return fmt.Errorf("%s (XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES bounds the size of a response)", s.Message())
	}
	return fmt.Errorf("%s: %s", s.Code(), s.Message())
}

// stream is one stream of requests and responses.
type stream struct {
	sending sync.Mutex // gRPC allows one call of SendMsg at a time; the stream ends with its connection, and send with it
	grpc    grpc.ClientStream
}

// send sends a request. An error ends the stream, and reading from it returns the reason.
func (s *stream) send(request []byte) {
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = s.grpc.SendMsg(request)
}

// dial returns a connection that connects when it is used.
func dial(cfg *Config) (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if cfg.TLS != nil {
		transport = credentials.NewTLS(cfg.TLS())
	}
	return grpc.NewClient(cfg.Server,
		grpc.WithTransportCredentials(transport),
		grpc.WithDisableServiceConfig(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(cfg.MaxMessage)))
}

// codec leaves messages as they are: []byte to the server, *string from it.
type codec struct{}

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*string) = string(data.Materialize())
	return nil
}

// Name implements encoding.CodecV2.
func (codec) Name() string { return "proto" }
