package replay

import (
	"fmt"
	"net"
	"net/netip"
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
	ip, err := netip.ParseAddr(host)
	if remote || host == "localhost" || err == nil && ip.Unmap().IsLoopback() {
		return nil
	}
	return fmt.Errorf("%q is not on this machine: the sample would use up the limits of its clients; "+
		"--allow-remote permits it", address)
}
