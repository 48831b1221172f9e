package doctor

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// rateLimits checks the ratelimit filters of a connection manager: their domains, or those of routes in their place
// (RateLimitPerRoute), and the descriptors that its routes make. It reports whether one of the domains has rules.
func (c *check) rateLimits(manager value, filters, tables []value) bool {
	all := c.Limits.Domains()
	var domains []string // with rules
	domain := func(v value) {
		name, id := v.get("domain"), "domain-without-rules" // they may come from an xDS server
		if suggest.DidYouMean(name.Text(), all) != "" {
			id = "domain-misspelled"
		}
		if slices.Contains(all, name.Text()) {
			domains = append(domains, name.Text())
		} else if name.exists() {
			c.find(id, name, c.Limits.Miss(name.Text(), nil, ratelimit.ShowValues))
		}
	}
	for _, filter := range filters {
		domain(filter)
		c.status(filter)
	}
	for _, table := range tables {
		for _, v := range table.ofType("RateLimitPerRoute") {
			domain(v)
		}
	}
	if len(domains) == 0 {
		return false
	}
	// The local rate limit filter also reads the `rate_limits` of routes.
	local := len(manager.get("http_filters").ofType("LocalRateLimit")) > 0
	for _, from := range slices.Concat(filters, tables) {
		from.walk(func(v value) {
			typed := v.isType("RateLimit") || v.isType("RateLimitPerRoute")
			if v.isType("LocalRateLimit") || local && !typed {
				return
			}
			of := domains
			if own := v.get("domain").Text(); typed && own != "" {
				of = slices.DeleteFunc(slices.Clone(domains), func(d string) bool { return d != own })
			}
			for _, limit := range v.get("rate_limits").list() {
				entries, limited := c.rateLimit(limit, of)
				switch cost := limit.get("hits_addend"); {
				case !cost.exists():
				case !typed:
					c.find("cost-ignored", cost,
						"Envoy ignores `hits_addend` in the `rate_limits` of a virtual host or a route: each request costs 1")
				case limited:
					c.cost(limit, cost, entries, of)
				}
			}
		})
	}
	return true
}

// status compares rate_limited_status of a filter with the status of each limit of its domain. Another one is a
// warning, because limits of the domain may apply in ext_authz only.
func (c *check) status(filter value) {
	const usual = http.StatusTooManyRequests
	field := filter.get("rate_limited_status").get("code")
	status, err := strconv.Atoi(field.Text())
	for ; err != nil && field.exists() && strings.ReplaceAll(http.StatusText(status), " ", "") != field.Text(); status++ {
		if status > 599 {
			return // a name that is unknown here
		}
	}
	if status < http.StatusBadRequest { // Envoy does the same
		status = usual
	}
	for _, rule := range c.Limits.All() {
		for i := range rule.Limits {
			wanted := cmp.Or(rule.Limits[i].Status, usual)
			if wanted == status || rule.Unlimited || rule.Node.Shadow || !filter.get("domain").hasText(rule.Domain) {
				continue
			}
			c.find("status-differs", cmp.Or(field, filter),
				fmt.Sprintf("Envoy answers a denial by `%s` with %d, but its status is %d", rule.Limits[i].Policy, status, wanted),
				fmt.Sprintf("write `rate_limited_status: {code: %d}` here, or change `status` or RESPONSE_STATUS", wanted))
			return
		}
	}
}

// rateLimit checks the descriptor of one entry of `rate_limits`. One of the domains must have a rule for it, unless the
// request brings the limit. It returns the entries, and whether such a rule exists.
func (c *check) rateLimit(limit value, domains []string) (entries []ratelimit.PossibleEntry, limited bool) {
	entries, known := entriesOf(limit)
	if !known || len(domains) == 0 || limit.get("limit").exists() || c.holdOf(limit, entries, domains) {
		return nil, false
	}
	var miss string
	for _, domain := range domains {
		text := c.Limits.MissOfAll(domain, entries)
		if text == "" {
			return entries, true
		}
		miss = cmp.Or(miss, text)
	}
	c.find("descriptor-unmatched", cmp.Or(limit.get("actions"), limit),
		"no limit applies to the descriptor of these actions: "+miss)
	return nil, false
}

// cost warns of a cost that is charged again for each retry of a denied request. A peek charges nothing, a refund is
// no charge, and Envoy ignores the answer to a cost that is known only after the response.
func (c *check) cost(limit, cost value, entries []ratelimit.PossibleEntry, domains []string) {
	peek := cost.get("number").hasText("0") && !cost.get("format").exists()
	if peek || cost.get("is_negative_hits").hasText("true") || limit.get("apply_on_stream_done").hasText("true") {
		return
	}
	for _, domain := range domains {
		if rule := c.Limits.ChargesDenials(domain, entries); rule != "" {
			c.find("cost-of-denied", cost,
				"the cost is charged for denied requests, too: a client that retries at once stays denied", "the rule is "+rule)
			return
		}
	}
}

// keysOfActions are the keys of the entries of actions without a `descriptor_key`; "" for those that need one.
var keysOfActions = map[string]string{
	"source_cluster": "source_cluster", "destination_cluster": "destination_cluster",
	"remote_address": "remote_address", "masked_remote_address": "masked_remote_address",
	"request_headers": "", "query_parameters": "", "metadata": "", "dynamic_metadata": "",
	"generic_key": "generic_key", "header_value_match": "header_match", "query_parameter_value_match": "query_match",
	"remote_address_match": "remote_address_match",
}

// entriesOf returns the entries that the actions of a rate limit make. It returns false if it does not know an action.
func entriesOf(limit value) (entries []ratelimit.PossibleEntry, known bool) {
	for _, action := range limit.get("actions").list() {
		for name, field := range action.Fields() {
			a := value{field}
			byDefault, known := keysOfActions[snake(name)]
			e := ratelimit.PossibleEntry{Optional: a.get("skip_if_absent").hasText("true")}
			e.Key, e.Value = cmp.Or(a.get("descriptor_key").Text(), byDefault), a.get("descriptor_value").Text()
			if !known || e.Key == "" {
				return nil, false
			}
			e.AnyValue = e.Value == "" || strings.Contains(e.Value, "%") // the value is that of a request
			entries = append(entries, e)
		}
	}
	return entries, len(entries) > 0
}

// clustersOf returns the names of the clusters in a file. It returns nil if Envoy may get others from xDS.
func clustersOf(root value) []string {
	var names []string
	dumps := root.get("configs").ofType("ClustersConfigDump")
	if root.get("dynamic_resources").get("cds_config").exists() && len(dumps) == 0 {
		return nil
	}
	for _, cluster := range root.get("static_resources").get("clusters").list() {
		names = append(names, cluster.get("name").Text())
	}
	for _, dump := range dumps {
		dump.walk(func(v value) { names = append(names, v.get("cluster").get("name").Text()) })
	}
	return names
}
