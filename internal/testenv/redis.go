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

// RedisServer is a redis-server of one test: empty at first, keeping nothing on disk. Its methods are for one goroutine.
type RedisServer struct {
	// Addr is its TCP address, "127.0.0.1:<port>". It stays the same over Restart.
	Addr string
	// Socket is the path of its Unix socket.
	Socket string

	t    testing.TB
	args []string
	proc *process
}

// Redis starts a redis-server that lives as long as the test. The args are added to its command line and win over what is
// set there already, as in Redis(t, "--maxmemory", "10mb").
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	port := FreePort(t)
	dir := shortTempDir(t)
	r := &RedisServer{t: t, Addr: Loopback(port), Socket: filepath.Join(dir, "redis.sock")}
	r.args = append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--unixsocket", r.Socket,
		"--dir", dir, "--save", "", "--appendonly", "no",
		"--loglevel", "warning", "--hz", "100", // expired keys and timeouts are noticed within 10 ms
	}, args...)
	r.start()
	return r
}

func (r *RedisServer) start() {
	r.t.Helper()
	r.proc = startProcess(r.t, exec.Command(Binary(r.t, "redis-server", "REDIS_SERVER_BIN"), r.args...))
	r.proc.awaitReady(r.t, func() error { return pingRedis(r.Addr) })
}

// Kill ends the server as a crash would; what it held is lost. Connections are refused from then on.
func (r *RedisServer) Kill() { r.proc.kill() }

// Restart starts the server again, empty and at the same address; one that still runs is killed first.
func (r *RedisServer) Restart() {
	r.t.Helper()
	r.Kill()
	r.start()
}

// Pause stops the server in its tracks (SIGSTOP): it takes connections and commands, and does not answer them.
func (r *RedisServer) Pause() {
	r.t.Helper()
	r.proc.pause(r.t)
}

// Resume lets a paused server go on; it then works through what it was sent in the meantime.
func (r *RedisServer) Resume() { r.proc.signal(syscall.SIGCONT) }

// pingRedis says whether a Redis at this address answers.
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
	// A server that wants a password, or refuses to say PONG for another reason, is up all the same; one that still loads
	// its data is not.
	if strings.HasPrefix(reply, "-LOADING") {
		return fmt.Errorf("PING: %s", strings.TrimSpace(reply))
	}
	return nil
}

// shortTempDir is a directory for the length of the test whose name is short enough for a Unix socket in it (107 bytes);
// that of t.TempDir holds the name of the test.
func shortTempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "extauthz-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
