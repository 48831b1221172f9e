package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
)

// emptyServer is the subcommand that serves the empty handler.
const emptyServer = "serve-empty"

type empty struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	authv3.UnimplementedAuthorizationServer
}

func (empty) Check(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	return &authv3.CheckResponse{
		Status:       &statuspb.Status{},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{}},
	}, nil
}

func (empty) ShouldRateLimit(context.Context, *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	return &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}, nil
}

func serveEmpty(address string) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		fail(err)
	}
	g := grpc.NewServer()
	ratelimitv3.RegisterRateLimitServiceServer(g, empty{})
	authv3.RegisterAuthorizationServer(g, empty{})
	fail(g.Serve(listener))
}

// server is a process under measurement.
type server struct {
	address string
	cmd     *exec.Cmd
}

func compile(ctx context.Context, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/extauthz")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build ./cmd/extauthz (run this in the root of the repository): %w", err)
	}
	return nil
}

// port stands for a free port in the environment and the arguments of a process.
const port = "PORT_OF_PROCESS"

// freePort returns a free port of loopback, which the server takes.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), l.Close()
}

func (s *stage) startService(ctx context.Context, binary string, env []string) (*server, error) {
	env = append(env, "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "GRPC_PORT="+port, "PORT=0", "DEBUG_PORT=0")
	return s.launch(ctx, env, binary)
}

// launch starts a process, which ends with the stage, and waits until it accepts connections.
func (s *stage) launch(ctx context.Context, env []string, command string, args ...string) (*server, error) {
	free, err := freePort()
	if err != nil {
		return nil, err
	}
	for _, texts := range [][]string{env, args} {
		for i := range texts {
			texts[i] = strings.ReplaceAll(texts[i], port, free)
		}
	}
	one := &server{address: net.JoinHostPort("127.0.0.1", free), cmd: exec.CommandContext(ctx, command, args...)}
	one.cmd.Env, one.cmd.Stderr = append(os.Environ(), env...), os.Stderr
	endWithUs(one.cmd)
	if err := one.cmd.Start(); err != nil {
		return nil, err
	}
	s.servers = append(s.servers, one)
	const patience = time.Minute // 100,000 rules take some seconds
	for deadline := time.Now().Add(patience); ; {
		conn, err := net.Dial("tcp", one.address)
		if err == nil {
			return one, conn.Close()
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, fmt.Errorf("%s does not listen on %s: %w", command, one.address, err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill() // it may have ended already
	_ = s.cmd.Wait()         // killed
}
