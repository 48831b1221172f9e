package testenv

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// RedisServer is a redis-server of one test. It starts empty and does not persist: if it
// is killed, its data is lost. Its methods are for one goroutine.
type RedisServer struct {
	// Addr is the TCP address, "127.0.0.1:<port>", or that of another --bind. Restart does not change it.
	Addr string
	// Socket is the path of the Unix socket.
	Socket string

	*Program
	t    testing.TB
	args []string
}

// FreePortArg stands for a free port in the command line of a server.
const FreePortArg = "a free port"

// Redis starts a redis-server and ends it with the test. The args override its command line: "--maxmemory", "10mb".
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
	r.Program = Start(r.t, exec.Command(Binary(r.t, "redis-server", "TEST_REDIS_BIN"), r.args...), func() error {
		_, err := r.Do("PING")
		// A server that refuses PING, for instance because it requires a password, is up. One that loads its data is not.
		if errors.Is(err, errReply) && !strings.Contains(err.Error(), "LOADING") {
			return nil
		}
		return err
	})
}

// Restart kills the server if it runs, and starts it again, empty and at the same address.
func (r *RedisServer) Restart() {
	r.t.Helper()
	r.Kill()
	r.start()
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
