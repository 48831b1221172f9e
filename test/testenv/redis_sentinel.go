package testenv

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// RedisSentinels are three sentinels, a master and its replica.
type RedisSentinels struct {
	// Name is the name of the master.
	Name string
	// Master and Replica are the two servers. After a failover, they have the other role.
	Master, Replica *RedisServer
	// Sentinels answer commands of Sentinel.
	Sentinels []*RedisServer
}

// Sentinels starts a master, a replica and three sentinels, and ends them with the test. The args override the command
// line of the two servers. With --tls-replication, all of them serve TLS and use it among themselves.
func Sentinels(t testing.TB, args ...string) *RedisSentinels {
	t.Helper()
	s := &RedisSentinels{Name: "mymaster"}
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	s.Master = Redis(t, args...)
	host, _ := s.Master.hostPort()
	s.Replica = Redis(t, append([]string{"--replicaof", host, s.Master.peerPort()}, args...)...)
	s.Replica.awaitData()
	for range 3 {
		s.Sentinels = append(s.Sentinels, sentinel(t, s.Name, s.Master))
	}
	for _, one := range s.Sentinels {
		one.await("the sentinels to know each other and the replica", "num-slaves 1 num-other-sentinels 2 ",
			"SENTINEL", "MASTER", s.Name)
	}
	return s
}

// Watch has the sentinels fail over one second after the master stops answering. Before, they wait for a minute.
func (s *RedisSentinels) Watch() {
	s.Master.t.Helper()
	for _, one := range s.Sentinels {
		if _, err := one.Do("SENTINEL", "SET", s.Name, "down-after-milliseconds", "1000"); err != nil {
			s.Master.t.Fatal(err)
		}
	}
}

// sentinel starts a sentinel for a master.
func sentinel(t testing.TB, name string, master *RedisServer) *RedisServer {
	t.Helper()
	port, dir := FreePort(t), shortTempDir(t)
	host, _ := master.hostPort()
	r := &RedisServer{t: t, Addr: Loopback(port)}
	file := filepath.Join(dir, "sentinel.conf")
	// A busy machine is not a fault, so the sentinels are patient.
	config := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor %[3]s %s %s 2\n"+
		"sentinel down-after-milliseconds %[3]s 60000\nsentinel failover-timeout %[3]s 5000\n",
		port, dir, name, host, master.peerPort())
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r.args = []string{file, "--sentinel"}
	if options := tlsOptions(master.args); len(options) > 0 {
		r.args = append(append(r.args, options...), "--tls-port", strconv.Itoa(FreePort(t)))
	}
	r.start()
	return r
}

// Addrs returns the name of the master and the addresses of the sentinels, separated by commas.
func (s *RedisSentinels) Addrs() string {
	addrs := []string{s.Name}
	for _, one := range s.Sentinels {
		host, _ := one.hostPort()
		addrs = append(addrs, net.JoinHostPort(host, one.peerPort()))
	}
	return strings.Join(addrs, ",")
}
