package testenv

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
)

// clusterSlots is the number of slots of a Redis Cluster.
const clusterSlots = 16384

// RedisCluster is a Redis Cluster of one test. Its methods are for one goroutine.
type RedisCluster struct {
	// Masters have the slots, in equal parts and in their order.
	Masters []*RedisServer

	t    testing.TB
	args []string
}

// Cluster starts a Redis Cluster of three masters and ends it with the test. The args override the command line of each
// server, as in Cluster(t, "--cluster-node-timeout", "1000").
func Cluster(t testing.TB, args ...string) *RedisCluster {
	t.Helper()
	c := &RedisCluster{t: t, args: args}
	const masters = 3
	for i := range masters {
		m := c.start()
		m.must("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*clusterSlots/masters), strconv.Itoa((i+1)*clusterSlots/masters-1))
		m.must("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		c.Masters = append(c.Masters, m)
	}
	for _, m := range c.Masters[1:] {
		c.meet(m)
	}
	for _, m := range c.Masters {
		m.await("the cluster to have all nodes", fmt.Sprintf("cluster_known_nodes:%d\r\n", masters), "CLUSTER", "INFO")
		m.await("the cluster to be complete", "cluster_state:ok", "CLUSTER", "INFO")
	}
	return c
}

// start starts a server that belongs to no cluster yet.
func (c *RedisCluster) start() *RedisServer {
	c.t.Helper()
	return Redis(c.t, append([]string{
		"--cluster-enabled", "yes", "--cluster-port", FreePortArg, "--repl-diskless-sync-delay", "0",
		"--cluster-node-timeout", "60000", // a busy machine is not a fault
		"--cluster-replica-validity-factor", "0", // a replica that was not elected at once tries again without end
	}, c.args...)...)
}

// meet makes a server a member.
func (c *RedisCluster) meet(r *RedisServer) {
	c.t.Helper()
	host, port := r.hostPort()
	c.Masters[0].must("CLUSTER", "MEET", host, port, r.Option("--cluster-port"))
}

// AddReplica starts a replica of a master, and returns it after it has all data.
func (c *RedisCluster) AddReplica(master *RedisServer) *RedisServer {
	c.t.Helper()
	r := c.start()
	c.meet(r)
	id := master.must("CLUSTER", "MYID")
	Eventually(c.t, func() error {
		_, err := r.Do("CLUSTER", "REPLICATE", id)
		return err
	}, "the replica to know its master")
	r.awaitData()
	// Otherwise it would not serve them at once as a master.
	r.await("the replica to know the slots of all masters", "cluster_state:ok", "CLUSTER", "INFO")
	for _, m := range c.Masters {
		m.await("the masters to know the replica", "slave "+id, "CLUSTER", "NODES")
	}
	return r
}

// awaitData waits until a replica has all data of its master.
func (r *RedisServer) awaitData() {
	r.t.Helper()
	r.await("the replica to have the data", "master_link_status:up", "INFO", "replication")
}

// Addrs returns the addresses of the masters, separated by commas.
func (c *RedisCluster) Addrs() string {
	var addrs []string
	for _, m := range c.Masters {
		addrs = append(addrs, m.Addr)
	}
	return strings.Join(addrs, ",")
}

// MasterOf returns the master that has the slot of a key.
func (c *RedisCluster) MasterOf(key string) *RedisServer {
	return c.Masters[c.slot(key)*len(c.Masters)/clusterSlots]
}

func (c *RedisCluster) slot(key string) int {
	c.t.Helper()
	slot, err := strconv.Atoi(c.Masters[0].must("CLUSTER", "KEYSLOT", key))
	if err != nil {
		c.t.Fatal(err)
	}
	return slot
}

// BeginMove starts to move the slot of a key to another master. No key is moved yet.
func (c *RedisCluster) BeginMove(key string, from, to *RedisServer) {
	c.t.Helper()
	slot := strconv.Itoa(c.slot(key))
	to.must("CLUSTER", "SETSLOT", slot, "IMPORTING", from.must("CLUSTER", "MYID"))
	from.must("CLUSTER", "SETSLOT", slot, "MIGRATING", to.must("CLUSTER", "MYID"))
}

// MoveKey moves one key of a moving slot.
func (c *RedisCluster) MoveKey(key string, from, to *RedisServer) {
	c.t.Helper()
	host, _ := to.hostPort()
	from.must("MIGRATE", host, to.peerPort(), key, "0", "5000")
}

// EndMove ends the move of the slot of a key: the other master has it now. Its keys must have been moved.
func (c *RedisCluster) EndMove(key string, from, to *RedisServer) {
	c.t.Helper()
	slot, id := strconv.Itoa(c.slot(key)), to.must("CLUSTER", "MYID")
	for _, m := range append([]*RedisServer{to, from}, c.Masters...) {
		m.must("CLUSTER", "SETSLOT", slot, "NODE", id)
	}
}

func (r *RedisServer) hostPort() (host, port string) {
	r.t.Helper()
	host, port, err := net.SplitHostPort(r.Addr)
	if err != nil {
		r.t.Fatal(err)
	}
	return host, port
}

// Option returns the last value of an option of the command line.
func (r *RedisServer) Option(name string) (value string) {
	for i := range r.args {
		if r.args[i] == name {
			value = r.args[i+1]
		}
	}
	return value
}
