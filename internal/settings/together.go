package settings

import (
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// maxConnAge is 100 years. A transport adds up to a tenth to an age, which must not overflow.
const maxConnAge = 876_000 * time.Hour

// checkTogether returns the mistakes of settings that are out of range or contradict each other.
func (s *Settings) checkTogether(e environment) (mistakes []Finding) {
	for _, rule := range []struct {
		broken        bool
		setting, text string
	}{
		{s.UsesRedis() && s.Redis.Main.URL == "", "BACKEND_TYPE",
			"BACKEND_TYPE=redis needs REDIS_URL, such as redis://127.0.0.1:6379"},
		{!s.UsesRedis() && s.Redis.Main.URL != "", "BACKEND_TYPE",
			"BACKEND_TYPE=memory with REDIS_URL: each replica would count alone; unset one of them"},
		{s.Redis.UsePerSecond && s.Redis.PerSecond.URL == "",
			"REDIS_PERSECOND", "REDIS_PERSECOND=true needs REDIS_PERSECOND_URL, such as redis://127.0.0.1:6380"},
		{s.Redis.UsePerSecond && !s.UsesRedis(),
			"REDIS_PERSECOND", "REDIS_PERSECOND=true needs REDIS_URL, too: the Redis of windows of a minute and longer"},
		{(s.Redis.Cert == "") != (s.Redis.Key == ""),
			"REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY: set both or none"},
		{s.TLS.Use && (s.TLS.Cert == "" || s.TLS.Key == ""),
			"GRPC_SERVER_USE_TLS", "GRPC_SERVER_USE_TLS=true needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY"},
		{s.TLS.ClientSAN != "" && s.TLS.ClientCA == "",
			"GRPC_CLIENT_TLS_SAN", "set GRPC_CLIENT_TLS_CACERT, too; without it, clients need no certificate"},
		{s.Listeners.MaxStreams < 1 || s.Listeners.MaxStreams > math.MaxInt32, "GRPC_MAX_CONCURRENT_STREAMS",
			"want 1 to 2147483647, such as 1024"},
		{s.Listeners.MaxConnAge != 0 && (s.Listeners.MaxConnAge < time.Millisecond || s.Listeners.MaxConnAge > maxConnAge),
			"GRPC_MAX_CONNECTION_AGE", "want 1ms to 876000h, or 0 for no maximum"},
		{s.Listeners.MaxConnGrace < 0, "GRPC_MAX_CONNECTION_AGE_GRACE", "want more than 0, such as 1h, or 0 for no maximum"},
		{s.Memory.MaxBuckets < 1, "MEMORY_MAX_BUCKETS", "want 1 or more"},
		{s.Redis.FallbackReplicas < 1 || s.Redis.FallbackReplicas > nearstore.MaxReplicas,
			"LOCAL_FALLBACK_REPLICAS", fmt.Sprintf("want 1 to %d, the number of replicas that share Redis",
				nearstore.MaxReplicas)},
		{s.Telemetry.MetricValues < 1, "METRIC_VALUES_MAX", "want 1 or more"},
		{s.Telemetry.UseStatsd && s.Telemetry.UseDogStatsd, "USE_STATSD", "USE_STATSD and USE_DOG_STATSD: set one of them"},
		{s.Telemetry.FlushInterval < time.Millisecond, "STATS_FLUSH_INTERVAL", "want 1ms or more, such as 10s"},
		{s.Listeners.MaxConnections < 0 || s.Listeners.HTTPMaxConnections < 0,
			"GRPC_MAX_CONNECTIONS",
			"GRPC_MAX_CONNECTIONS and HTTP_MAX_CONNECTIONS: want 1 or more, or 0 for as many as the memory limit allows"},
		{s.Authorization.MaxHeld < 1, "AUTHZ_MAX_HELD", "want 1 or more"},
		{s.Limits.MaxHeldPerBucket < 0, "MAX_HELD_PER_BUCKET", "want 1 or more, or 0 for a tenth of AUTHZ_MAX_HELD"},
		{s.Keys.MaxAge < 0, "API_KEYS_MAX_AGE", "want 0 or more, such as 24h"},
		{s.Authorization.HTTPTimeout <= 0, "AUTHZ_HTTP_TIMEOUT", "want more than 0, such as 200ms"},
		{s.Redis.Main.PoolSize < 1, "REDIS_POOL_SIZE", "want 1 or more"},
		{s.Redis.PerSecond.PoolSize < 1, "REDIS_PERSECOND_POOL_SIZE", "want 1 or more"},
		{e["REDIS_PERSECOND_TIMEOUT"] != "" && s.Redis.PerSecond.Timeout <= 0,
			"REDIS_PERSECOND_TIMEOUT", "want more than 0, such as 15ms"},
		{e["REDIS_TIMEOUT"] != "" && s.Redis.Main.Timeout <= 0, "REDIS_TIMEOUT", "want more than 0, such as 15ms"},
		{s.Rules.ConfigType == ConfigXDS && !isTarget(s.XDS.Server),
			"CONFIG_GRPC_XDS_SERVER_URL", "want host:port, such as envoy-gateway:18001"},
		{s.XDS.NodeID == "", "CONFIG_GRPC_XDS_NODE_ID", "want the id that the xDS server knows"},
		{(s.XDS.Cert == "") != (s.XDS.Key == ""),
			"CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
			"CONFIG_GRPC_XDS_CLIENT_TLS_CERT and CONFIG_GRPC_XDS_CLIENT_TLS_KEY: set both or none"},
		{s.XDS.ConnectInterval <= 0, "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "want more than 0, such as 3s"},
		{s.XDS.Backoff <= 0, "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "want more than 0, such as 10s"},
		{s.XDS.MaxBackoff <= 0, "XDS_CLIENT_BACKOFF_MAX_INTERVAL", "want more than 0, such as 60s"},
		{s.XDS.RandomFactor < 0, "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "want 0 or more, such as 0.5"},
		{s.XDS.MaxMessage < 0, "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "want 1 or more, or 0 for 4 MiB"},
		{s.Process.DrainDelay < 0 || s.Process.DrainTimeout < 0, "DRAIN_DELAY",
			"DRAIN_DELAY and DRAIN_TIMEOUT: want 0s or more"},
	} {
		if rule.broken {
			mistakes = append(mistakes, Finding{rule.setting, rule.text})
		}
	}
	if _, err := ParseHeaders(s.XDS.Headers); err != nil {
		mistakes = append(mistakes, Finding{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", err.Error()})
	}
	mistakes = append(mistakes, s.readMogrifiers(e)...)
	return mistakes
}

// contradictions returns the settings that have no effect because of others, so that the operator has probably meant
// something else. Each is a warning, and a mistake with STRICT_ENVIRONMENT.
func (s *Settings) contradictions() (list []Finding) {
	for _, rule := range []struct {
		broken        bool
		setting, text string
	}{
		{s.Redis.Main.Auth != "" && s.Redis.Main.URL == "", "REDIS_AUTH", "REDIS_AUTH has no effect without REDIS_URL"},
		{s.Redis.PerSecond.URL != "" && !s.Redis.UsePerSecond, "REDIS_PERSECOND_URL",
			"REDIS_PERSECOND_URL has no effect without REDIS_PERSECOND=true"},
		{s.Listeners.GRPCUDS != "" && s.Listeners.GRPCPort != usualGRPCPort, "GRPC_PORT",
			"GRPC_PORT has no effect with GRPC_UDS: gRPC is served on the socket only"},
		{s.Telemetry.LogClientValues && slog.Level(s.Telemetry.LogLevel) > slog.LevelInfo, "LOG_CLIENT_VALUES",
			"LOG_CLIENT_VALUES has no effect with this LOG_LEVEL: decisions are logged with INFO and DEBUG"},
	} {
		if rule.broken {
			list = append(list, Finding{rule.setting, rule.text})
		}
	}
	return list
}

// usualGRPCPort is the default of GRPC_PORT, and that of envoyproxy/ratelimit.
const usualGRPCPort = 8081

// ineffectiveRedis returns a warning for each setting of Redis without effect: TLS for a Redis without TLS, sentinels
// without Sentinel, and a second Redis that is not used. A certificate includes its key. STRICT_ENVIRONMENT does not
// refuse these settings, because envoyproxy/ratelimit ignores them, too.
func (s *Settings) ineffectiveRedis() (warnings []Finding) {
	if !s.UsesRedis() {
		return nil
	}
	noTLS := !s.Redis.Main.UsesTLS() && (!s.Redis.UsePerSecond || !s.Redis.PerSecond.UsesTLS())
	const tlsRemedy = " has no effect without TLS: write rediss:// in REDIS_URL, or set REDIS_TLS=true"
	const secondRemedy = " has no effect without REDIS_PERSECOND=true"
	for _, setting := range []struct {
		ineffective bool
		name, text  string
	}{
		{noTLS && s.Redis.CACert != "", "REDIS_TLS_CACERT", "REDIS_TLS_CACERT" + tlsRemedy},
		{noTLS && s.Redis.Cert != "", "REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_CERT" + tlsRemedy},
		{noTLS && s.Redis.SkipHostname, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
			"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION" + tlsRemedy},
		{s.Redis.Main.Type != "SENTINEL" && s.Redis.Main.SentinelAuth != "",
			"REDIS_SENTINEL_AUTH", "REDIS_SENTINEL_AUTH has no effect without REDIS_TYPE=SENTINEL"},
		{s.Redis.UsePerSecond && s.Redis.PerSecond.Type != "SENTINEL" && s.Redis.PerSecond.SentinelAuth != "",
			"REDIS_PERSECOND_SENTINEL_AUTH",
			"REDIS_PERSECOND_SENTINEL_AUTH has no effect without REDIS_PERSECOND_TYPE=SENTINEL"},
		{!s.Redis.UsePerSecond && s.Redis.PerSecond.Auth != "", "REDIS_PERSECOND_AUTH",
			"REDIS_PERSECOND_AUTH" + secondRemedy},
	} {
		if setting.ineffective {
			warnings = append(warnings, Finding{setting.name, setting.text})
		}
	}
	return warnings
}

// ineffectiveTLS returns a warning for each setting of TLS for a gRPC listener without TLS. They are no mistake,
// because envoyproxy/ratelimit ignores them, too.
func (s *Settings) ineffectiveTLS() (warnings []Finding) {
	for _, setting := range []struct{ name, value string }{
		{"GRPC_SERVER_TLS_CERT", s.TLS.Cert},
		{"GRPC_SERVER_TLS_KEY", s.TLS.Key},
		{"GRPC_CLIENT_TLS_CACERT", s.TLS.ClientCA},
	} {
		if setting.value != "" && !s.TLS.Use {
			warnings = append(warnings, Finding{setting.name, setting.name + " has no effect without GRPC_SERVER_USE_TLS=true"})
		}
	}
	return warnings
}

// ineffectiveXDS returns a warning for each setting of the xDS server that has no effect.
func (s *Settings) ineffectiveXDS(e environment) (warnings []Finding) {
	for _, name := range Names() {
		isXDS := strings.HasPrefix(name, "CONFIG_GRPC_XDS_") || strings.HasPrefix(name, "XDS_CLIENT_")
		switch {
		case !isXDS || e[name] == "":
		case s.Rules.ConfigType != ConfigXDS:
			warnings = append(warnings, Finding{name, name + " has no effect without CONFIG_TYPE=" + ConfigXDS})
		case !s.XDS.UseTLS && strings.Contains(name, "_TLS_"):
			warnings = append(warnings, Finding{name, name + " has no effect without CONFIG_GRPC_XDS_SERVER_USE_TLS=true"})
		}
	}
	return warnings
}

// ofMogrifier reports whether a variable belongs to a name in USE_DOG_STATSD_MOGRIFIERS.
func (e environment) ofMogrifier(variable string) bool {
	var names MogrifierNames
	if names.UnmarshalText([]byte(e["USE_DOG_STATSD_MOGRIFIERS"])) != nil {
		return false
	}
	return slices.ContainsFunc(names, func(name string) bool {
		what, ok := strings.CutPrefix(variable, mogrifierPrefix+name+"_")
		return ok && (what == "PATTERN" || what == "NAME" || what == "TAGS")
	})
}

const mogrifierPrefix = "DOG_STATSD_MOGRIFIER_"

// readMogrifiers reads the variables of each name in USE_DOG_STATSD_MOGRIFIERS, and returns their mistakes. Only
// DogStatsD uses them.
func (s *Settings) readMogrifiers(e environment) (mistakes []Finding) {
	if !s.Telemetry.UseDogStatsd {
		return nil
	}
	for _, name := range s.Telemetry.MogrifierNames {
		variable := mogrifierPrefix + name
		m := telemetry.Mogrifier{Name: e[variable+"_NAME"]}
		if m.Name == "" {
			mistakes = append(mistakes, Finding{variable + "_NAME", "want the name of the statistic, such as ratelimit.$1"})
		}
		pattern := e[variable+"_PATTERN"]
		var err error
		if m.Pattern, err = regexp.Compile(pattern); pattern == "" || err != nil {
			mistakes = append(mistakes, Finding{variable + "_PATTERN", `want a regular expression, such as ^ratelimit\.(.*)$`})
		}
		var t Tags
		if err := t.UnmarshalText([]byte(e[variable+"_TAGS"])); err != nil {
			mistakes = append(mistakes, Finding{variable + "_TAGS", err.Error()})
		}
		m.Tags = t
		s.Telemetry.Mogrifiers = append(s.Telemetry.Mogrifiers, m)
	}
	return mistakes
}
