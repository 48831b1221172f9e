package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// keyspace is the Redis of one Config: a *node, or a *cluster.
type keyspace interface {
	// home returns where the bucket of a key is.
	home(key string) home
	// masters returns the nodes that have buckets.
	masters() []*node
	ping(ctx context.Context) error
	close() error
}

// home is where a bucket is.
type home struct {
	cluster *cluster // nil for a single node
	node    *node    // nil if no node of the cluster serves the slot
	scope
}

func newKeyspace(cfg Config) (keyspace, error) {
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	options.Dialer = linking(options, bound{most: mostBytes}, cfg.Connections)
	if cfg.Mode == Cluster {
		return newCluster(cfg, options), nil
	}
	name := options.Addrs[0]
	if cfg.Mode == Sentinel {
		name = options.MasterName
	}
	return newNode(name, cfg, options, func(cause error) { cfg.Up(name, cause) }), nil
}

func (n *node) home(string) home { return home{node: n} }

func (c *cluster) home(key string) home {
	slot := slotOf(key)
	return home{cluster: c, node: c.nodeOf(slot), scope: scope{slot: slot}}
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

func (n *node) masters() []*node { return []*node{n} }

// at returns the options of a client of one node.
func at(options *redis.UniversalOptions, addr string) *redis.UniversalOptions {
	o := *options
	o.Addrs, o.IsClusterMode = []string{addr}, false
	return &o
}
