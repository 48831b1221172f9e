package redisstore

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// keyspace is the Redis of one Config: a single node, or the nodes of a cluster.
type keyspace struct {
	cfg     Config
	one     *node    // nil for a cluster
	cluster *cluster // nil for a single node
}

// home is where a bucket is.
type home struct {
	keyspace *keyspace
	node     *node // nil if no node of the cluster serves the slot
	scope
}

func newKeyspace(cfg Config) (*keyspace, error) {
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	k := &keyspace{cfg: cfg}
	if cfg.Mode == Cluster {
		k.cluster = newCluster(cfg, options)
		return k, nil
	}
	name := options.Addrs[0]
	if cfg.Mode == Sentinel {
		name = options.MasterName
	}
	k.one = newNode(name, cfg, options, func(cause error) { cfg.up(name, cause) })
	return k, nil
}

// place returns where the bucket of a key is.
func (k *keyspace) home(key string) home {
	if k.cluster == nil {
		return home{keyspace: k, node: k.one}
	}
	slot := slotOf(key)
	return home{keyspace: k, node: k.cluster.nodeOf(slot), scope: scope{slot: slot}}
}

func (k *keyspace) ping(ctx context.Context) error {
	if k.cluster != nil {
		return k.cluster.ping(ctx)
	}
	return k.one.ping(ctx)
}

func (k *keyspace) close() error {
	if k.cluster != nil {
		return k.cluster.close()
	}
	return k.one.close()
}

// NodeState is whether one Redis answers.
type NodeState struct {
	// Name is the address of the Redis, or the name of the master of sentinels.
	Name string
	// PerSecond is set if it belongs to Config.PerSecond.
	PerSecond bool
	// Up is set while the Redis answers.
	Up bool
}

// nodes returns the states of all nodes that are known.
func (k *keyspace) nodes(perSecond bool) []NodeState {
	list := []*node{k.one}
	if k.cluster != nil {
		if list = k.cluster.masters(); len(list) == 0 {
			return []NodeState{{Name: k.cluster.name(), PerSecond: perSecond}}
		}
	}
	states := make([]NodeState, len(list))
	for i, n := range list {
		states[i] = NodeState{Name: n.name, PerSecond: perSecond, Up: !n.breaker.open()}
	}
	return states
}

// at returns the options of a client of one node.
func at(options *redis.UniversalOptions, addr string) *redis.UniversalOptions {
	o := *options
	o.Addrs, o.IsClusterMode = []string{addr}, false
	return &o
}

// hostOf returns the host of an address, which has brackets if it is an IPv6 address.
func hostOf(addr string) string { return addr[:max(0, strings.LastIndexByte(addr, ':'))] }
