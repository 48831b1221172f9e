package testenv

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// RedisServer is a redis-server of one test. It starts empty and does not persist. Its methods are for one goroutine.
type RedisServer struct {
	// Addr is the TCP address, "127.0.0.1:<port>", or that of another --bind. Restart does not change it.
	Addr string
	// Socket is the path of the Unix socket.
	Socket string

	t    testing.TB
	args []string
	proc *process
}

// FreePortArg stands for a free port in the command line of a server.
const FreePortArg = "a free port"

// Redis starts a redis-server and ends it with the test. The args override its command line, as in
// Redis(t, "--maxmemory", "10mb").
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	port := FreePort(t)
	dir := shortTempDir(t)
	r := &RedisServer{t: t, Socket: filepath.Join(dir, "redis.sock")}
	r.args = append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--unixsocket", r.Socket,
		"--dir", dir, "--save", "", "--appendonly", "no",
		"--loglevel", "warning", "--hz", "100", // Redis handles expired keys and timeouts within 10 ms
	}, args...)
	for i := range r.args {
		if r.args[i] == FreePortArg {
			r.args[i] = strconv.Itoa(FreePort(t))
		}
	}
	r.Addr = net.JoinHostPort(r.Option("--bind"), strconv.Itoa(port))
	r.start()
	return r
}

func (r *RedisServer) start() {
	r.t.Helper()
	r.proc = startProcess(r.t, exec.Command(Binary(r.t, "redis-server", "REDIS_SERVER_BIN"), r.args...))
	r.proc.awaitReady(r.t, func() error { return pingRedis(r.Addr) })
}

// Kill ends the server as a crash would. Its data is lost, and connections are refused.
func (r *RedisServer) Kill() { r.proc.kill() }

// Restart kills the server if it runs, and starts it again, empty and at the same address.
func (r *RedisServer) Restart() {
	r.t.Helper()
	r.Kill()
	r.start()
}

// Pause stops the server (SIGSTOP): the system accepts connections and commands for it, and nothing answers them.
func (r *RedisServer) Pause() {
	r.t.Helper()
	r.proc.pause(r.t)
}

// Resume continues a paused server, which then executes the commands that it received in the meantime.
func (r *RedisServer) Resume() { r.proc.signal(syscall.SIGCONT) }

// pingRedis returns nil if a Redis at this address answers.
func pingRedis(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	reply, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err
	}
	// A server that refuses PING, for instance because it requires a password, is up. One that loads its data is not.
	if strings.HasPrefix(reply, "-LOADING") {
		return fmt.Errorf("PING: %s", strings.TrimSpace(reply))
	}
	return nil
}

// shortTempDir makes a directory and removes it after the test. Its path is short enough for a Unix socket (107
// bytes). The path of t.TempDir may be too long, because it contains the name of the test.
func shortTempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "extauthz-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
