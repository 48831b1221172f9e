package ratelimit

// Domain holds the rules of a domain from one source, such as a file. Nothing in it is checked, and no default is
// filled in. Check finds its mistakes, NewRules compiles it. The tags describe its YAML.
type Domain struct {
	Name        string `yaml:"domain" doc:"The domain that the filter of Envoy names." example:"shop" required:"true"`
	Descriptors []Node `yaml:"descriptors" doc:"The rules. Each level of this tree matches one entry of a descriptor."`
	// Position is the position of Name, "file:line", for messages. Two Domains of one name differ in it.
	Position string `yaml:",position"`
}

// Node is one element of `descriptors:`. A descriptor that ends at a node without limits passes.
type Node struct {
	Key   string `yaml:"key" doc:"The key of an entry. * stands for any characters." example:"api_key" required:"true"`
	Value string `yaml:"value" doc:"The value of an entry. * stands for any characters. Without it, any value matches."`

	Network string `yaml:"network" doc:"The name of one of networks. An address in it matches, and a network within it." example:"office"`

	RateLimit *Limit  `yaml:"rate_limit" doc:"The limit for descriptors that end here." oneof:"limit,optional"`
	Limits    []Limit `yaml:"limits" doc:"Several limits. All of them apply." oneof:"limit,optional"`

	Shadow bool `yaml:"shadow_mode" doc:"Decides and counts requests, but never denies one." default:"false"`
	Quota  bool `yaml:"quota_mode" doc:"Denies a request only if all its quotas are over their limits." default:"false"`

	DetailedMetric bool `yaml:"detailed_metric" doc:"Metrics name all values of a request." default:"false"`
	ValueToMetric  bool `yaml:"value_to_metric" doc:"Metrics name the value of this entry." default:"false"`
	ShareThreshold bool `yaml:"share_threshold" doc:"All values that a wildcard or a network matches share one bucket." default:"false"`
	// Metadata holds only maps with string keys, lists, strings, bools, nil, int64, uint64 and float64.
	Metadata map[string]any `yaml:"metadata" doc:"Data for Envoy, with requests that this rule allows."`

	Descriptors []Node `yaml:"descriptors" doc:"The rules for the next entry of a descriptor."`
	// Position is the position of the node, "file:line", for messages.
	Position string `yaml:",position"`
}

// AllLimits returns the limits of descriptors that end at the node, unlimited ones included.
func (n *Node) AllLimits() []Limit {
	if n.RateLimit != nil {
		return append([]Limit{*n.RateLimit}, n.Limits...)
	}
	return n.Limits
}

// hasLimits reports whether the node is a rule.
func (n *Node) hasLimits() bool { return n.RateLimit != nil || len(n.Limits) > 0 }
