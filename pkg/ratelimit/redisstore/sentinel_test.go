package redisstore_test

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
	"github.com/extauthz/extauthz/test/testenv"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	sentinels := testenv.Sentinels(t)
	cfg := redisstore.Config{Mode: redisstore.Sentinel, URL: sentinels.Addrs()}
	storetest.Run(t, func(t *testing.T) storetest.Store { return open(t, cfg) })
	if name := open(t, cfg).Nodes()[0].Name; name != sentinels.Name {
		t.Errorf("the node is named %s, want %s", name, sentinels.Name)
	}
}

// TestSentinelDiscovered checks that the store also follows sentinels that are not in its URL.
func TestSentinelDiscovered(t *testing.T) {
	t.Parallel()
	sentinels := testenv.Sentinels(t)
	first, second := sentinels.Sentinels[0], sentinels.Sentinels[1]
	url := sentinels.Name + "," + first.Addr
	s := open(t, redisstore.Config{Mode: redisstore.Sentinel, URL: url, Timeout: patient})
	healthy(t, s)
	await(t, "another sentinel to be followed", func() bool {
		clients, err := second.Do("CLIENT", "LIST", "TYPE", "PUBSUB")
		return err == nil && strings.Contains(clients, " sub=2 ")
	})
	first.Kill()
	await(t, "the failover to begin", func() bool {
		_, err := second.Do("SENTINEL", "FAILOVER", sentinels.Name)
		return err == nil
	})
	stats := commandStats(t, sentinels.Replica)
	await(t, "the new master to be asked", func() bool {
		takeOne(t, s, "k", perDay(1e6))
		return stats()["evalsha"] > 0
	})
}

// TestSentinelsGone has more sentinels that do not even refuse a connection, as pods that are gone, than others. The
// store finds the master at the start and after an outage.
func TestSentinelsGone(t *testing.T) {
	t.Parallel()
	sentinels := testenv.Sentinels(t)
	url := sentinels.Addrs()
	for range len(sentinels.Sentinels) + 1 {
		url += "," + goneHost(t)
	}
	s := open(t, redisstore.Config{
		Mode: redisstore.Sentinel, URL: url, Timeout: brief, DialTimeout: 30 * time.Second, // longer than the test
	})
	answers(t, s)
	sentinels.Master.Pause()
	await(t, "the breaker to open", func() bool {
		return errors.Is(takeOne(t, s, "k", perDay(10)).Err, redisstore.ErrUnavailable)
	})
	sentinels.Master.Resume()
	answers(t, s)
}

// goneHost returns an address where no attempt to connect is answered: its queue of connections is full.
func goneHost(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
	for {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			return addr
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}

// TestSentinelEvents reads events of sentinels, among them such as no sentinel sends.
func TestSentinelEvents(t *testing.T) {
	for _, c := range []struct{ channel, payload, master, chosen string }{
		{"+switch-master", "mymaster 10.0.0.1 6379 10.0.0.2 6380", "10.0.0.2:6380", ""},
		{"+switch-master", "mymaster 2001:db8::1 6379 2001:db8::2 6380", "[2001:db8::2]:6380", ""},
		{"+switch-master", "another 10.0.0.1 6379 10.0.0.2 6380", "", ""},
		{"+switch-master", "mymaster 10.0.0.1", "", ""},
		{"+switch-master", "", "", ""},
		{"+selected-slave", "slave 10.0.0.2:6380 10.0.0.2 6380 @ mymaster 10.0.0.1 6379", "", "10.0.0.2:6380"},
		{"+selected-slave", "slave 10.0.0.2:6380 10.0.0.2 6380 @ another 10.0.0.1 6379", "", ""},
		{"+selected-slave", "slave", "", ""},
		{"+sdown", "mymaster 10.0.0.1 6379 10.0.0.2 6380", "", ""},
	} {
		master, chosen := redisstore.Hear("mymaster", c.channel, c.payload)
		if master != c.master || chosen != c.chosen {
			t.Errorf("%s %s: master %q, chosen %q, want %q, %q", c.channel, c.payload, master, chosen, c.master, c.chosen)
		}
	}
}
