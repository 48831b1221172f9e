package loadgen

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// listener is the processes that listen on an address of this machine.
type listener struct{ pids []int }

var errUnknown = errors.New("no process is known to listen there")

// findListener finds the processes by their listening socket. It finds none on another machine, or if another user runs
// them.
func findListener(address string) *listener {
	inodes := listeningOn(address)
	if len(inodes) == 0 {
		return &listener{}
	}
	var pids []int
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is valid
	for _, link := range links {
		target, _ := os.Readlink(link) // it may have gone, or belong to another user
		inode, ok := strings.CutPrefix(target, "socket:[")
		if !ok || !slices.Contains(inodes, strings.TrimSuffix(inode, "]")) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err == nil && pid != os.Getpid() && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return &listener{pids}
}

// listeningOn returns the inodes of the sockets that listen on an address. Sockets that listen on all addresses count
// only without one that listens on this very address.
func listeningOn(address string) (inodes []string) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return unixListeners(path)
	}
	host, portText, err := net.SplitHostPort(address)
	ip, ipErr := netip.ParseAddr(host)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	if err != nil || portErr != nil || ipErr != nil && host != "localhost" {
		return nil
	}
	var everywhere []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		for fields := range rows(table) {
			const listen = "0A"
			if len(fields) < 10 || fields[3] != listen {
				continue
			}
			local, ok := parseLocal(fields[1])
			switch {
			case !ok || uint64(local.Port()) != port:
			case local.Addr() == ip.Unmap() || ipErr != nil && local.Addr().IsLoopback():
				inodes = append(inodes, fields[9])
			case local.Addr().IsUnspecified():
				everywhere = append(everywhere, fields[9])
			}
		}
	}
	if inodes == nil {
		return everywhere
	}
	return inodes
}

func unixListeners(path string) (inodes []string) {
	for fields := range rows("/proc/net/unix") {
		const acceptsConnections = "00010000"
		if len(fields) == 8 && fields[7] == path && fields[3] == acceptsConnections {
			inodes = append(inodes, fields[6])
		}
	}
	return inodes
}

// rows returns the fields of each line of a table of /proc but the first.
func rows(file string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		table, err := os.ReadFile(file)
		if err != nil { // IPv6 can be missing
			return
		}
		for line := range bytes.Lines(table) {
			if !yield(strings.Fields(string(line))) {
				return
			}
		}
	}
}

// parseLocal reads an address of /proc/net/tcp: 32-bit words in the machine's order, which is little-endian on all
// platforms of a release, and the port.
func parseLocal(text string) (netip.AddrPort, bool) {
	address, portText, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	port, portErr := strconv.ParseUint(portText, 16, 16)
	if err != nil || portErr != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := raw; len(word) > 0; word = word[4:] {
		slices.Reverse(word[:4])
	}
	ip, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip.Unmap(), uint16(port)), ok
}

// cpu returns the CPU time that the processes have used, in the kernel and outside. The clock is exact to 1 ns, while
// /proc/PID/stat counts hundredths of a second.
func (l *listener) cpu() (total time.Duration, err error) {
	if len(l.pids) == 0 {
		return 0, errUnknown
	}
	for _, pid := range l.pids {
		const processClock = 2 // CPUCLOCK_SCHED of the kernel, for a whole process
		var t unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|processClock), &t); err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		total += time.Duration(t.Nano())
	}
	return total, nil
}

// memory returns the resident memory of the processes in bytes, 0 if it is unknown.
func (l *listener) memory() (total int64) {
	for _, pid := range l.pids {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // the process may have ended
		for line := range strings.Lines(string(status)) {
			if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				kilobytes, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
				total += kilobytes << 10
			}
		}
	}
	return total
}
