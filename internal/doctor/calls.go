package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// callsOf checks the calls of ext_authz filters, of routes in their place, and of ratelimit filters.
func (c *check) callsOf(settings, limits []value) {
	for _, s := range settings {
		grpc, http := s.get("grpc_service"), s.get("http_service")
		c.call("ext_authz", grpc, grpc.get("timeout"), 200*time.Millisecond)
		c.call("ext_authz", http, http.get("server_uri").get("timeout"), 200*time.Millisecond)
	}
	for _, filter := range limits {
		service := filter.get("rate_limit_service").get("grpc_service")
		c.call("ratelimit", service, filter.get("timeout"), 20*time.Millisecond)
	}
}

// safeRetries are the words of retry_on for calls that were not sent.
var safeRetries = []string{"", "connect-failure", "refused-stream", "reset-before-request"}

// call checks the timeout, the retries and the cluster of calls. If the file has no timeout, the default applies.
func (c *check) call(filter string, service, field value, byDefault time.Duration) {
	if !service.exists() {
		return
	}
	timeout, err := time.ParseDuration(field.Text())
	if err != nil {
		timeout = byDefault
	}
	at := cmp.Or(field, service)
	http := service.get("server_uri").get("cluster")
	left := max(0, timeout-ratelimit.DeadlineReserve)
	switch {
	case timeout <= 0:
		c.find("timeout-unlimited", at, "Envoy waits for "+filter+" without a limit of time")
	case !http.exists() && left < c.RedisWait:
		c.find("timeout-short", at, fmt.Sprintf("Envoy waits %s for %s, which leaves a decision %s for Redis: want %s",
			timeout, filter, left, c.RedisWait))
	case http.exists() && timeout < c.HTTPTimeout:
		c.find("timeout-http", at, fmt.Sprintf("Envoy waits %s for %s, and AUTHZ_HTTP_TIMEOUT is %s", timeout, filter,
			c.HTTPTimeout))
	}
	retries := service.get("retry_policy").get("retry_on")
	unsafe := strings.FieldsFunc(retries.Text(), func(r rune) bool { return r == ',' || r == ' ' })
	unsafe = slices.DeleteFunc(unsafe, func(word string) bool { return slices.Contains(safeRetries, word) })
	if len(unsafe) > 0 {
		c.find("retry-charges-twice", retries, "Envoy repeats calls of "+filter+" that were sent: "+
			suggest.List(unsafe, " and "), "the service may have charged such a call, and charges it again")
	}
	grpc := service.get("envoy_grpc").get("cluster_name")
	cluster := cmp.Or(grpc, http)
	c.result.filters[filter] = true
	if !cluster.exists() { // google_grpc has none
		return
	}
	c.result.clusters[cluster.Text()] = grpc.exists()
	if len(c.clusters) > 0 && !slices.Contains(c.clusters, cluster.Text()) {
		c.find("cluster-missing", cluster, "this file has no cluster "+suggest.Quoted(cluster.Text()),
			suggest.DidYouMean(cluster.Text(), c.clusters))
	}
}

// order checks that what descriptors need of ext_authz is there when Envoy calls ratelimit.
func (c *check) order(manager value, tables []value) {
	var namespaces []string // of the metadata of ext_authz
	var early []value       // ratelimit filters before all ext_authz filters
	for _, filter := range manager.get("http_filters").list() {
		if len(filter.ofType("ExtAuthz")) > 0 {
			namespaces = append(namespaces, strings.ToLower(filter.get("name").Text()))
		} else if len(namespaces) == 0 {
			early = append(early, filter.ofType("RateLimit")...)
		}
	}
	stage := func(v value) string { return cmp.Or(v.get("stage").Text(), "0") }
	needs := func(action value, where, key string, in []string) {
		at := action.get(where).get(key)
		if at = cmp.Or(at.get("key"), at); len(namespaces) > 0 && slices.Contains(in, strings.ToLower(at.Text())) {
			c.find("filter-order", at, "Envoy calls ratelimit before ext_authz, so "+suggest.Quoted(at.Text())+" is empty")
		}
	}
	for _, filter := range early {
		for _, from := range append(tables, filter) {
			from.walk(func(v value) {
				for _, limit := range v.get("rate_limits").list() {
					for _, action := range limit.get("actions").list() {
						if stage(limit) == stage(filter) {
							needs(action, "metadata", "metadata_key", namespaces)
							needs(action, "dynamic_metadata", "metadata_key", namespaces)
							needs(action, "request_headers", "header_name", c.identity)
						}
					}
				}
			})
		}
	}
}
