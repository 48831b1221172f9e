package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Reasons of several settings without effect.
const (
	noMemcached = "memcached cannot decide exactly and is not supported"
	noWait      = "the service starts without Redis, because STORE_ERROR_POLICY decides"
)

// WithoutEffect has, by name, the settings of envoyproxy/ratelimit that the service ignores, and the reason.
var WithoutEffect = map[string]string{
	"LOCAL_CACHE_SIZE_IN_BYTES":                    "DENIAL_CACHE needs no size; MEMORY_MAX_BUCKETS bounds its memory",
	"EXPIRATION_JITTER_MAX_SECONDS":                "each key expires as soon as it no longer affects decisions",
	"RUNTIME_WATCH_ROOT":                           "every change of the rule files is noticed",
	"REDIS_PIPELINE_WINDOW":                        "requests share round trips without waiting for each other",
	"REDIS_PIPELINE_LIMIT":                         "requests share round trips without waiting for each other",
	"REDIS_CLUSTER_PIPELINE_PARALLELISM":           "all nodes of a cluster are asked at the same time",
	"REDIS_POOL_ON_EMPTY_BEHAVIOR":                 "a request waits for a connection at most REDIS_TIMEOUT",
	"REDIS_STARTUP_MAX_ELAPSED_TIME":               noWait,
	"MEMCACHE_HOST_PORT":                           noMemcached,
	"MEMCACHE_MAX_IDLE_CONNS":                      noMemcached,
	"MEMCACHE_SRV":                                 noMemcached,
	"MEMCACHE_SRV_REFRESH":                         noMemcached,
	"MEMCACHE_TLS":                                 noMemcached,
	"MEMCACHE_TLS_CACERT":                          noMemcached,
	"MEMCACHE_TLS_CLIENT_CERT":                     noMemcached,
	"MEMCACHE_TLS_CLIENT_KEY":                      noMemcached,
	"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION":      noMemcached,
	"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM": "all nodes of a cluster are asked at the same time",
	"REDIS_PERSECOND_PIPELINE_LIMIT":               "requests share round trips without waiting for each other",
	"REDIS_PERSECOND_PIPELINE_WINDOW":              "requests share round trips without waiting for each other",
	"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR":       "a request waits for a connection at most REDIS_PERSECOND_TIMEOUT",
	"REDIS_STARTUP_INITIAL_INTERVAL":               noWait,
	"REDIS_STARTUP_MAX_INTERVAL":                   noWait,
	"REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR":     "a connection to a replica is always closed",
}

// ineffective returns a warning for each variable without effect: settings of envoyproxy/ratelimit, and misspelt
// settings.
func (e environment) ineffective() (warnings []Finding) {
	known := Names()
	for _, name := range slices.Sorted(maps.Keys(e)) {
		if slices.Contains(known, name) || e[name] == "" {
			continue
		}
		if why, ok := WithoutEffect[name]; ok {
			warnings = append(warnings, Finding{name, fmt.Sprintf("%s has no effect: %s", name, why)})
			continue
		}
		if meant := nearSetting(name, known); meant != "" {
			warnings = append(warnings, Finding{name, fmt.Sprintf("%s is not a setting: did you mean %s?", name, meant)})
		}
	}
	return warnings
}

// Meant returns the setting that an unknown name misspells, or "" for none.
func Meant(name string) string { return nearSetting(name, Names()) }

// nearSetting returns the setting that an unknown name misspells, or "" for none. It skips settings without an
// underscore, because variables of other programs have similar names.
func nearSetting(name string, known []string) string {
	for _, k := range known {
		if strings.Contains(k, "_") && suggest.Distance(strings.ToUpper(name), k) <= 2 {
			return k
		}
	}
	return ""
}

// unknownVariables returns the mistakes of STRICT_ENVIRONMENT: variables that are not settings of this service or of
// envoyproxy/ratelimit, and not of the platform. An empty variable counts, too.
func (e environment) unknownVariables() (mistakes []error) {
	known, links := append(Names(), "ECHO_ADDRESS"), e.serviceLinks()
	var unlike []error
	for _, name := range slices.Sorted(maps.Keys(e)) {
		// ineffective reports settings of envoyproxy/ratelimit.
		if slices.Contains(known, name) || WithoutEffect[name] != "" || e.ofMogrifier(name) || ofPlatform(name) ||
			ofServiceLink(name, links) {
			continue
		}
		if meant := suggest.Closest(name, known); meant != "" {
			mistakes = append(mistakes, Finding{name, fmt.Sprintf("%s is not a setting: did you mean %s?", name, meant)})
			continue
		}
		unlike = append(unlike, Finding{name, name + " is not a setting"})
	}
	mistakes = append(mistakes, unlike...)
	if len(mistakes) > 0 {
		mistakes = append(mistakes, errors.New("(STRICT_ENVIRONMENT=true refuses unknown variables; "+
			"it accepts those of the platform, such as PATH, HOME and KUBERNETES_SERVICE_HOST; "+
			"STRICT_ENVIRONMENT=false accepts all variables)"))
	}
	return mistakes
}
