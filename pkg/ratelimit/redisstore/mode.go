package redisstore

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// Mode is how the URL of a Config leads to Redis.
type Mode uint8

// The modes.
const (
	// Single is one Redis, at a URL.
	Single Mode = iota
	// Sentinel is the master that sentinels name. The URL is "master,host:port,host:port": the name of the master, and
	// the addresses of the sentinels.
	Sentinel
	// Cluster is a Redis Cluster. The URL is "host:port,host:port": some of its nodes.
	Cluster
)

// modes are the names of the modes, as envoyproxy/ratelimit has them.
var modes = [...]string{Single: "SINGLE", Sentinel: "SENTINEL", Cluster: "CLUSTER"}

func (m Mode) String() string { return modes[m] }

// Words lists the texts that UnmarshalText accepts.
func (Mode) Words() []string { return modes[:] }

// UnmarshalText accepts the name of a mode, in any case.
func (m *Mode) UnmarshalText(text []byte) error {
	for i, name := range modes {
		if strings.EqualFold(name, string(text)) {
			*m = Mode(i)
			return nil
		}
	}
	return fmt.Errorf("want one of %s", strings.Join(modes[:], ", "))
}

// The errors of lists of addresses. They never contain a part of the text, because it may hold a password.
var (
	errSentinels = errors.New("want the name of the master and the addresses of sentinels, such as " +
		"mymaster,sentinel-1:26379,sentinel-2:26379,sentinel-3:26379; passwords are settings of their own (the value is " +
		"not shown, since it may hold a password)")
	errCluster = errors.New("want the addresses of nodes of the cluster, such as " +
		"redis-1:6379,redis-2:6379,redis-3:6379; the password is a setting of its own (the value is not shown, since it " +
		"may hold a password)")
)

// parseSentinels reads the URL of the mode Sentinel.
func parseSentinels(text string) (master string, addrs []string, err error) {
	master, list, _ := strings.Cut(text, ",")
	master = strings.TrimSpace(master)
	addrs, ok := parseAddresses(list)
	if !ok || !hostName.MatchString(master) || strings.ContainsAny(master, ":@/") {
		return "", nil, errSentinels
	}
	return master, addrs, nil
}

// parseCluster reads the URL of the mode Cluster.
func parseCluster(text string) ([]string, error) {
	addrs, ok := parseAddresses(text)
	if !ok {
		return nil, errCluster
	}
	return addrs, nil
}

// parseAddresses reads one or more addresses with ports, separated by commas.
func parseAddresses(list string) (addrs []string, ok bool) {
	for addr := range strings.SplitSeq(list, ",") {
		addr = strings.TrimSpace(addr)
		host, port, err := net.SplitHostPort(addr)
		if err != nil || host == "" || port == "" || checkHost(host, port) != nil {
			return nil, false
		}
		addrs = append(addrs, addr)
	}
	return addrs, true
}
