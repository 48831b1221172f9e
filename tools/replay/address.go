package replay

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// CheckAddress returns an error unless an address is host:port or unix:PATH. Without remote, the host must be this
// machine, because the requests of a sample use up limits.
func CheckAddress(address string, remote bool) error {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" {
			return fmt.Errorf("%q: want unix:PATH, such as unix:/run/ratelimit.sock", address)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" || host == "" {
		return fmt.Errorf("%q: want host:port, such as 127.0.0.1:8081, or unix:PATH", address)
	}
	return checkHost(address, host, remote)
}

// CheckURL returns an error unless an address is that of an HTTP server. Without remote, it must be this machine.
func CheckURL(address string, remote bool) error {
	const want = "want http://host:port or https://host:port, such as http://127.0.0.1:8080"
	if strings.Contains(address, "@") {
		return fmt.Errorf("a user and a password cannot be in it (the value is not shown): %s", want)
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return fmt.Errorf("%q: %s", address, want)
	}
	return checkHost(address, u.Hostname(), remote)
}

// checkHost returns an error unless a host is this machine or may be another one.
func checkHost(address, host string, remote bool) error {
	ip, err := netip.ParseAddr(host)
	if remote || host == "localhost" || err == nil && ip.Unmap().IsLoopback() {
		return nil
	}
	return fmt.Errorf("%q is not on this machine: the requests would use up the limits of its clients; "+
		"--allow-remote permits it", address)
}
