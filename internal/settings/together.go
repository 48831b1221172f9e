package settings

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/httpheader"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// maxConnAge is 100 years. A transport adds up to a tenth to an age, which must not overflow.
const maxConnAge = 876_000 * time.Hour

// rule is a rule between settings, and what the operator should know if it is broken.
type rule struct {
	broken        bool
	setting, text string
}

func brokenOf(rules []rule) (list []Finding) {
	for _, r := range rules {
		if r.broken {
			list = append(list, Finding{r.setting, r.text})
		}
	}
	return list
}

// withoutEffect returns the findings that settings have no effect, with the reasons in the texts of broken rules.
func withoutEffect(rules []rule) []Finding {
	list := brokenOf(rules)
	for i, f := range list {
		list[i].Text = f.Setting + " has no effect " + f.Text
	}
	return list
}

// checkTogether returns the mistakes of settings that are out of range or contradict each other.
func (s *Settings) checkTogether(e environment) []Finding {
	age, streams := s.Listeners.MaxConnAge, s.Listeners.MaxStreams
	mistakes := brokenOf([]rule{
		{s.UsesRedis() && s.Redis.Main.URL == "", "BACKEND_TYPE",
			"BACKEND_TYPE=redis needs REDIS_URL, such as redis://127.0.0.1:6379"},
		{!s.UsesRedis() && s.Redis.Main.URL != "", "BACKEND_TYPE",
			"BACKEND_TYPE=memory with REDIS_URL: each replica would count alone; unset one of them"},
		{s.Redis.UsePerSecond && s.Redis.PerSecond.URL == "", "REDIS_PERSECOND",
			"REDIS_PERSECOND=true needs REDIS_PERSECOND_URL, such as redis://127.0.0.1:6380"},
		{s.Redis.UsePerSecond && !s.UsesRedis(), "REDIS_PERSECOND",
			"REDIS_PERSECOND=true needs REDIS_URL, too: the Redis of windows of a minute and longer"},
		{(s.Redis.Cert == "") != (s.Redis.Key == ""), "REDIS_TLS_CLIENT_CERT",
			"REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY: set both or none"},
		{s.TLS.Use && (s.TLS.Cert == "" || s.TLS.Key == ""), "GRPC_SERVER_USE_TLS",
			"GRPC_SERVER_USE_TLS=true needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY"},
		{s.TLS.ClientSAN != "" && s.TLS.ClientCA == "", "GRPC_CLIENT_TLS_SAN",
			"set GRPC_CLIENT_TLS_CACERT, too; without it, clients need no certificate"},
		{streams < 1 || streams > math.MaxInt32, "GRPC_MAX_CONCURRENT_STREAMS", "want 1 to 2147483647, such as 1024"},
		{age != 0 && (age < time.Millisecond || age > maxConnAge), "GRPC_MAX_CONNECTION_AGE",
			"want 1ms to 876000h, or 0 for no maximum"},
		{s.Redis.FallbackReplicas > nearstore.MaxReplicas, "LOCAL_FALLBACK_REPLICAS",
			fmt.Sprintf("want 1 to %d, the number of replicas that share Redis", nearstore.MaxReplicas)},
		{s.Telemetry.UseStatsd && s.Telemetry.UseDogStatsd, "USE_STATSD",
			"USE_STATSD and USE_DOG_STATSD: set one of them"},
		{s.Telemetry.FlushInterval < time.Millisecond, "STATS_FLUSH_INTERVAL", "want 1ms or more, such as 10s"},
		{s.Rules.ConfigType == ConfigXDS && !isTarget(s.XDS.Server), "CONFIG_GRPC_XDS_SERVER_URL",
			"want host:port, such as envoy-gateway:18001"},
		{(s.XDS.Cert == "") != (s.XDS.Key == ""), "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
			"CONFIG_GRPC_XDS_CLIENT_TLS_CERT and CONFIG_GRPC_XDS_CLIENT_TLS_KEY: set both or none"},
		{s.Answers.Status < 400 || s.Answers.Status > 599, "RESPONSE_STATUS",
			"want a status from 400 to 599, such as 403"},
		{misnamed(s.Answers.ReplyHeaders().Sent()), "RESPONSE_HEADERS",
			"the headers of an answer need different names that frame no message and mean nothing else: " +
				"change RESPONSE_HEADER_NAMES, or LIMIT_LIMIT_HEADER and its like, or send fewer sets"},
		{misnamed(s.Answers.RequestHeaders().Names()), "LIMIT_REQUEST_LIMIT_HEADER",
			"LIMIT_REQUEST_LIMIT_HEADER, LIMIT_REQUEST_REMAINING_HEADER and LIMIT_REQUEST_RESET_HEADER: " +
				"want three different names that frame no message and mean nothing else, such as X-Limit"},
		{s.Process.DrainDelay < 0 || s.Process.DrainTimeout < 0, "DRAIN_DELAY",
			"DRAIN_DELAY and DRAIN_TIMEOUT: want 0s or more"},
	})
	if _, err := ParseHeaders(s.XDS.Headers); err != nil {
		mistakes = append(mistakes, Finding{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", err.Error()})
	}
	return append(mistakes, s.readMogrifiers(e)...)
}

// misnamed reports whether two headers of one message have the same name, or one has a name that it cannot have.
func misnamed(names []string) bool {
	slices.Sort(names)
	return len(slices.Compact(names)) < len(names) ||
		slices.ContainsFunc(names, func(name string) bool { return httpheader.Misnamed(name) != "" })
}

// contradictions returns the settings that have no effect because of others, so that the operator has probably meant
// something else. Each is a warning, and a mistake with STRICT_ENVIRONMENT.
func (s *Settings) contradictions() []Finding {
	const usualGRPCPort = 8081 // the default, and that of envoyproxy/ratelimit
	return withoutEffect([]rule{
		{s.Redis.Main.Auth != "" && s.Redis.Main.URL == "", "REDIS_AUTH", "without REDIS_URL"},
		{s.Redis.PerSecond.URL != "" && !s.Redis.UsePerSecond, "REDIS_PERSECOND_URL", "without REDIS_PERSECOND=true"},
		{s.Listeners.GRPCUDS != "" && s.Listeners.GRPCPort != usualGRPCPort, "GRPC_PORT",
			"with GRPC_UDS: gRPC is served on the socket only"},
	})
}

// ineffective returns a warning for each setting of Redis, TLS or the local cache without effect. A certificate stands
// for its key. STRICT_ENVIRONMENT accepts these settings, because deployments of envoyproxy/ratelimit have them.
func (s *Settings) ineffective() []Finding {
	redis, second := s.UsesRedis(), s.Redis.UsePerSecond
	noTLS := redis && !s.Redis.Main.UsesTLS() && (!second || !s.Redis.PerSecond.UsesTLS())
	const noRedisTLS = "without TLS: write rediss:// in REDIS_URL, or set REDIS_TLS=true"
	const noServerTLS = "without GRPC_SERVER_USE_TLS=true"
	return withoutEffect([]rule{
		{!s.Strict() && s.Limits.LocalCache != 0, "LOCAL_CACHE_SIZE_IN_BYTES",
			"without COMPATIBILITY=strict: DENIAL_CACHE needs no size; MEMORY_MAX_BUCKETS bounds its memory"},
		{noTLS && s.Redis.CACert != "", "REDIS_TLS_CACERT", noRedisTLS},
		{noTLS && s.Redis.Cert != "", "REDIS_TLS_CLIENT_CERT", noRedisTLS},
		{noTLS && s.Redis.SkipHostname, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", noRedisTLS},
		{redis && s.Redis.Main.Type != "SENTINEL" && s.Redis.Main.SentinelAuth != "", "REDIS_SENTINEL_AUTH",
			"without REDIS_TYPE=SENTINEL"},
		{redis && second && s.Redis.PerSecond.Type != "SENTINEL" && s.Redis.PerSecond.SentinelAuth != "",
			"REDIS_PERSECOND_SENTINEL_AUTH", "without REDIS_PERSECOND_TYPE=SENTINEL"},
		{redis && !second && s.Redis.PerSecond.Auth != "", "REDIS_PERSECOND_AUTH", "without REDIS_PERSECOND=true"},
		{!s.TLS.Use && s.TLS.Cert != "", "GRPC_SERVER_TLS_CERT", noServerTLS},
		{!s.TLS.Use && s.TLS.Key != "", "GRPC_SERVER_TLS_KEY", noServerTLS},
		{!s.TLS.Use && s.TLS.ClientCA != "", "GRPC_CLIENT_TLS_CACERT", noServerTLS},
	})
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

// readMogrifiers reads the variables of each MogrifierName for DogStatsD, and returns their mistakes.
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
		if err := (*Tags)(&m.Tags).UnmarshalText([]byte(e[variable+"_TAGS"])); err != nil {
			mistakes = append(mistakes, Finding{variable + "_TAGS", err.Error()})
		}
		s.Telemetry.Mogrifiers = append(s.Telemetry.Mogrifiers, m)
	}
	return mistakes
}
