package loadgen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// listener is the processes that listen on an address of this machine.
type listener struct{ pids []int }

var errUnknown = errors.New("no process is known to listen there")

// findListener finds the processes by their listening socket. It finds none of other machines and of other users.
func findListener(address string) *listener {
	l := &listener{}
	sockets := listeningOn(address)
	if len(sockets) == 0 {
		return l
	}
	all, _ := procfs.AllProcs() // none without /proc
	for _, p := range all {
		files, _ := p.FileDescriptorTargets() // the process may have ended, or belong to another user
		ofSocket := func(file string) bool { return slices.Contains(sockets, file) }
		if p.PID != os.Getpid() && slices.ContainsFunc(files, ofSocket) {
			l.pids = append(l.pids, p.PID)
		}
	}
	return l
}

// listeningOn returns the sockets that listen on an address, as the targets of file descriptors. Sockets that listen on
// all addresses count only without one that listens on this very address.
func listeningOn(address string) (sockets []string) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil
	}
	socket := func(inode uint64) string { return fmt.Sprintf("socket:[%d]", inode) }
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		table, err := fs.NetUNIX()
		if err != nil {
			return nil
		}
		for _, line := range table.Rows {
			const acceptsConnections = 1 << 16
			if line.Path == path && line.Flags == acceptsConnections {
				sockets = append(sockets, socket(line.Inode))
			}
		}
		return sockets
	}
	host, portText, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	if err != nil || portErr != nil || ip == nil && host != "localhost" {
		return nil
	}
	ipv4, _ := fs.NetTCP()  //nolint:staticcheck // netlink would be a dependency for this call alone
	ipv6, _ := fs.NetTCP6() //nolint:staticcheck // as above; IPv6 can be missing
	var everywhere []string
	for _, line := range append(ipv4, ipv6...) {
		const listen = 0x0a
		switch {
		case line.St != listen || line.LocalPort != port:
		case line.LocalAddr.Equal(ip) || ip == nil && line.LocalAddr.IsLoopback():
			sockets = append(sockets, socket(line.Inode))
		case line.LocalAddr.IsUnspecified():
			everywhere = append(everywhere, socket(line.Inode))
		}
	}
	if sockets == nil {
		return everywhere
	}
	return sockets
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
		if p, err := procfs.NewProc(pid); err == nil { // it may have ended
			status, _ := p.NewStatus()
			total += int64(status.VmRSS)
		}
	}
	return total
}
