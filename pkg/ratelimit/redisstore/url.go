package redisstore

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Mode is how the URL of a Config leads to Redis.
type Mode uint8

// The modes.
const (
	// Single is one Redis, at a URL.
	Single Mode = iota
	// Sentinel is the master that sentinels name. The URL is its name and their addresses: "master,host:port,host:port".
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

// parseURL reads an address of Redis in the forms of Config.URL. It refuses a text with a possible password in the
// wrong place, because errors and logs name the host, the port and the path. Its error never contains a part of the
// text, nor an error of a library, which might.
func parseURL(text string) (*redis.Options, error) {
	switch {
	case text == "":
		return &redis.Options{Addr: "localhost:6379"}, nil
	case strings.Contains(text, "://"):
		return parseFullURL(text)
	case strings.Contains(text, "@"):
		return nil, wrongURL("it has an @ and no scheme")
	case strings.Contains(text, ","):
		return nil, errList
	case strings.HasPrefix(text, "/"):
		if strings.ContainsAny(text, "?#") {
			return nil, wrongURL("it is a path with a ? or #")
		}
		return &redis.Options{Network: "unix", Addr: text}, nil
	}
	host, port := text, "6379"
	if h, p, err := net.SplitHostPort(text); err == nil {
		host, port = h, p
	}
	if err := checkHost(host, port); err != nil {
		return nil, err
	}
	return &redis.Options{Addr: net.JoinHostPort(host, port)}, nil
}

func parseFullURL(text string) (*redis.Options, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, wrongURL("it cannot be read")
	case u.Fragment != "" || strings.Contains(u.Path+u.RawQuery, "@"):
		return nil, wrongURL("it has a # or an @ behind the host")
	case u.Scheme == "unix" && u.Host != "":
		return nil, wrongURL("it has a host in front of the path of a socket")
	case u.Scheme == "redis", u.Scheme == "rediss":
		if err := checkHost(u.Hostname(), u.Port()); err != nil {
			return nil, err
		}
	case u.Scheme != "unix":
		return nil, wrongURL("its scheme is not redis, rediss or unix")
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, wrongURL("its database is not a number, or an option is unknown")
	}
	return o, nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// checkHost checks the host and the port of a URL. Either may be empty.
func checkHost(host, port string) error {
	if _, err := netip.ParseAddr(host); err != nil && host != "" && !hostName.MatchString(host) {
		return wrongURL("its host is not a name or an address")
	}
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
		return wrongURL("its port is not a number from 1 to 65535")
	}
	return nil
}

// errList is the error of several addresses.
var errList = errors.New("it has a comma: one Redis has one address. A list is for Sentinel and Cluster " +
	"(REDIS_TYPE=SENTINEL or CLUSTER)")

func wrongURL(reason string) error {
	return fmt.Errorf("%s: want redis://[user:password@]host:port[/db], rediss://..., unix:///path, host:port or /path, "+
		"with each special character of user and password percent-encoded "+
		"(the value is not shown, since it may hold a password)", reason)
}
