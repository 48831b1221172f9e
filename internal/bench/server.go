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
	name, address string
	cmd           *exec.Cmd
	// header and value are the credential of a Check.
	header, value string
	// base is the same server of another build, or nil.
	base *server
}

// as returns the same process under another name, to call with a credential.
func (s *server) as(name, header, value string) *server {
	if s == nil { // it did not start
		return nil
	}
	other := *s
	other.name, other.header, other.value = name, header, value
	return &other
}

func build(ctx context.Context, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/extauthz")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build ./cmd/extauthz (run this in the root of the repository): %w", err)
	}
	return nil
}

// startServer starts a process and waits until its gRPC port answers.
func startServer(ctx context.Context, name string, args, env []string) (*server, error) {
	var ports [3]string
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports[i] = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		_ = l.Close() // the server takes the port
	}
	s := &server{name: name, address: "127.0.0.1:" + ports[0]}
	if args[len(args)-1] == emptyServer {
		args = append(args, s.address)
	}
	s.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	s.cmd.Env = append(append(os.Environ(), "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1",
		"GRPC_PORT="+ports[0], "PORT="+ports[1], "DEBUG_PORT="+ports[2]), env...)
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		conn, err := net.Dial("tcp", s.address)
		if err == nil {
			return s, conn.Close()
		}
		if time.Now().After(deadline) {
			s.stop()
			return nil, fmt.Errorf("%s does not listen on %s: %w", name, s.address, err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill() // it may have ended already
	_ = s.cmd.Wait()         // killed
}

// cpu returns the CPU time that the process has used, user and system.
func (s *server) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest) // utime and stime are fields 14 and 15 of proc(5), so 11 and 12 from here
	ticks := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// ticksPerSecond is USER_HZ, which is 100 on every Linux.
const ticksPerSecond = 100

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}
