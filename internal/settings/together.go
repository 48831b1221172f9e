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

// mistake adds what the operator should know about a setting if a rule is broken.
func (fs *Findings) mistake(broken bool, setting, text string) {
	if broken {
		*fs = append(*fs, Finding{setting, text})
	}
}

// noEffect adds a warning if a setting has no effect, with the reason.
func (fs *Findings) noEffect(is bool, setting, why string) {
	fs.mistake(is, setting, setting+" has no effect"+why)
}

// checkTogether returns the mistakes of settings that are out of range or contradict each other.
func (s *Settings) checkTogether(e environment) (fs Findings) {
	age, streams := s.Listeners.MaxConnAge, s.Listeners.MaxStreams
	fs.mistake(s.UsesRedis() && s.Redis.Main.URL == "", "BACKEND_TYPE",
		"BACKEND_TYPE=redis needs REDIS_URL, such as redis://127.0.0.1:6379")
	fs.mistake(!s.UsesRedis() && s.Redis.Main.URL != "", "BACKEND_TYPE",
		"BACKEND_TYPE=memory with REDIS_URL: each replica would count alone; unset one of them")
	fs.mistake(s.Limits.DefaultAlgorithm.Windowless(), "DEFAULT_ALGORITHM",
		"DEFAULT_ALGORITHM cannot be concurrency: each limit of that needs a `hold` of its own")
	fs.mistake(s.Redis.UsePerSecond && s.Redis.PerSecond.URL == "", "REDIS_PERSECOND",
		"REDIS_PERSECOND=true needs REDIS_PERSECOND_URL, such as redis://127.0.0.1:6380")
	fs.mistake(s.Redis.UsePerSecond && !s.UsesRedis(), "REDIS_PERSECOND",
		"REDIS_PERSECOND=true needs REDIS_URL, too: the Redis of windows of a minute and longer")
	fs.mistake((s.Redis.Cert == "") != (s.Redis.Key == ""), "REDIS_TLS_CLIENT_CERT",
		"REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY: set both or none")
	fs.mistake(s.TLS.Use && (s.TLS.Cert == "" || s.TLS.Key == ""), "GRPC_SERVER_USE_TLS",
		"GRPC_SERVER_USE_TLS=true needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY")
	fs.mistake(s.TLS.ClientSAN != "" && s.TLS.ClientCA == "", "GRPC_CLIENT_TLS_SAN",
		"set GRPC_CLIENT_TLS_CACERT, too; without it, clients need no certificate")
	fs.mistake(streams < 1 || streams > math.MaxInt32, "GRPC_MAX_CONCURRENT_STREAMS", "want 1 to 2147483647, such as 1024")
	fs.mistake(age != 0 && (age < time.Millisecond || age > maxConnAge), "GRPC_MAX_CONNECTION_AGE",
		"want 1ms to 876000h, or 0 for no maximum")
	fs.mistake(s.Redis.FallbackReplicas > nearstore.MaxReplicas, "LOCAL_FALLBACK_REPLICAS",
		fmt.Sprintf("want 1 to %d, the number of replicas that share Redis", nearstore.MaxReplicas))
	fs.mistake(s.Telemetry.UseStatsd && s.Telemetry.UseDogStatsd, "USE_STATSD",
		"USE_STATSD and USE_DOG_STATSD: set one of them")
	fs.mistake(s.Telemetry.FlushInterval < time.Millisecond, "STATS_FLUSH_INTERVAL", "want 1ms or more, such as 10s")
	fs.mistake(s.Rules.ConfigType == ConfigXDS && !isTarget(s.XDS.Server), "CONFIG_GRPC_XDS_SERVER_URL",
		"want host:port, such as envoy-gateway:18001")
	fs.mistake((s.XDS.Cert == "") != (s.XDS.Key == ""), "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT and CONFIG_GRPC_XDS_CLIENT_TLS_KEY: set both or none")
	fs.mistake(s.Answers.Status < 400 || s.Answers.Status > 599, "RESPONSE_STATUS",
		"want a status from 400 to 599, such as 403")
	fs.mistake(misnamed(s.Answers.ReplyHeaders().Sent()), "RESPONSE_HEADERS",
		"the headers of an answer need different names that frame no message and mean nothing else: "+
			"change RESPONSE_HEADER_NAMES, or LIMIT_LIMIT_HEADER and its like, or send fewer sets")
	fs.mistake(misnamed(s.Answers.RequestHeaders().Names()), "LIMIT_REQUEST_LIMIT_HEADER",
		"LIMIT_REQUEST_LIMIT_HEADER, LIMIT_REQUEST_REMAINING_HEADER and LIMIT_REQUEST_RESET_HEADER: "+
			"want three different names that frame no message and mean nothing else, such as X-Limit")
	fs.mistake(s.Process.DrainDelay < 0 || s.Process.DrainTimeout < 0, "DRAIN_DELAY",
		"DRAIN_DELAY and DRAIN_TIMEOUT: want 0s or more")
	_, err := ParseHeaders(s.XDS.Headers)
	fs.mistake(err != nil, "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", fmt.Sprint(err))
	return append(fs, s.readMogrifiers(e)...)
}

// misnamed reports whether two headers of one message have the same name, or one has a name that it cannot have.
func misnamed(names []string) bool {
	slices.Sort(names)
	return len(slices.Compact(names)) < len(names) ||
		slices.ContainsFunc(names, func(name string) bool { return httpheader.Misnamed(name) != "" })
}

// contradictions returns the settings that have no effect because of others, so that the operator has probably meant
// something else. Each is a warning, and a mistake with STRICT_ENVIRONMENT.
func (s *Settings) contradictions() (fs Findings) {
	const usualGRPCPort = 8081 // the default, and that of envoyproxy/ratelimit
	fs.noEffect(s.Redis.Main.Auth != "" && s.Redis.Main.URL == "", "REDIS_AUTH", " without REDIS_URL")
	fs.noEffect(s.Redis.PerSecond.URL != "" && !s.Redis.UsePerSecond, "REDIS_PERSECOND_URL",
		" without REDIS_PERSECOND=true")
	fs.noEffect(s.Listeners.GRPCUDS != "" && s.Listeners.GRPCPort != usualGRPCPort, "GRPC_PORT",
		" with GRPC_UDS: gRPC is served on the socket only")
	return fs
}

// ineffective returns a warning for each setting of Redis, TLS or the local cache without effect. A certificate stands
// for its key. STRICT_ENVIRONMENT accepts these settings, because deployments of envoyproxy/ratelimit have them.
func (s *Settings) ineffective() (fs Findings) {
	redis, second := s.UsesRedis(), s.Redis.UsePerSecond
	noTLS := redis && !s.Redis.Main.UsesTLS() && (!second || !s.Redis.PerSecond.UsesTLS())
	const noRedisTLS = " without TLS: write rediss:// in REDIS_URL, or set REDIS_TLS=true"
	const noServerTLS = " without GRPC_SERVER_USE_TLS=true"
	fs.noEffect(!s.Strict() && s.Limits.LocalCache != 0, "LOCAL_CACHE_SIZE_IN_BYTES",
		" without COMPATIBILITY=strict: DENIAL_CACHE needs no size; MEMORY_MAX_BUCKETS bounds its memory")
	fs.noEffect(noTLS && s.Redis.CACert != "", "REDIS_TLS_CACERT", noRedisTLS)
	fs.noEffect(noTLS && s.Redis.Cert != "", "REDIS_TLS_CLIENT_CERT", noRedisTLS)
	fs.noEffect(noTLS && s.Redis.SkipHostname, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", noRedisTLS)
	fs.noEffect(redis && s.Redis.Main.Type != "SENTINEL" && s.Redis.Main.SentinelAuth != "", "REDIS_SENTINEL_AUTH",
		" without REDIS_TYPE=SENTINEL")
	fs.noEffect(redis && second && s.Redis.PerSecond.Type != "SENTINEL" && s.Redis.PerSecond.SentinelAuth != "",
		"REDIS_PERSECOND_SENTINEL_AUTH", " without REDIS_PERSECOND_TYPE=SENTINEL")
	fs.noEffect(redis && !second && s.Redis.PerSecond.Auth != "", "REDIS_PERSECOND_AUTH", " without REDIS_PERSECOND=true")
	fs.noEffect(!s.TLS.Use && s.TLS.Cert != "", "GRPC_SERVER_TLS_CERT", noServerTLS)
	fs.noEffect(!s.TLS.Use && s.TLS.Key != "", "GRPC_SERVER_TLS_KEY", noServerTLS)
	fs.noEffect(!s.TLS.Use && s.TLS.ClientCA != "", "GRPC_CLIENT_TLS_CACERT", noServerTLS)
	return fs
}

// ineffectiveXDS returns a warning for each setting of the xDS server that has no effect.
func (s *Settings) ineffectiveXDS(e environment) (fs Findings) {
	files := s.Rules.ConfigType != ConfigXDS
	for _, name := range Names() {
		given := e[name] != "" && (strings.HasPrefix(name, "CONFIG_GRPC_XDS_") || strings.HasPrefix(name, "XDS_CLIENT_"))
		fs.noEffect(given && files, name, " without CONFIG_TYPE="+ConfigXDS)
		fs.noEffect(given && !files && !s.XDS.UseTLS && strings.Contains(name, "_TLS_"), name,
			" without CONFIG_GRPC_XDS_SERVER_USE_TLS=true")
	}
	return fs
}

// ofMogrifier reports whether a variable belongs to a name in USE_DOG_STATSD_MOGRIFIERS.
func (e environment) ofMogrifier(variable string) bool {
	names := strings.ToUpper(e["USE_DOG_STATSD_MOGRIFIERS"])
	return forms["names"].fits(names) && slices.ContainsFunc(strings.Split(names, ","), func(name string) bool {
		what, ok := strings.CutPrefix(variable, mogrifierPrefix+name+"_")
		return ok && name != "" && (what == "PATTERN" || what == "NAME" || what == "TAGS")
	})
}

const mogrifierPrefix = "DOG_STATSD_MOGRIFIER_"

// readMogrifiers reads the variables of each MogrifierName for DogStatsD, and returns their mistakes.
func (s *Settings) readMogrifiers(e environment) (fs Findings) {
	if !s.Telemetry.UseDogStatsd {
		return nil
	}
	for _, name := range s.Telemetry.MogrifierNames {
		variable := mogrifierPrefix + strings.ToUpper(name)
		pattern, err := regexp.Compile(e[variable+"_PATTERN"])
		m := telemetry.Mogrifier{Name: e[variable+"_NAME"], Pattern: pattern}
		fs.mistake(m.Name == "", variable+"_NAME", "want the name of the statistic, such as ratelimit.$1")
		fs.mistake(e[variable+"_PATTERN"] == "" || err != nil, variable+"_PATTERN",
			`want a regular expression, such as ^ratelimit\.(.*)$`)
		err = (*Tags)(&m.Tags).UnmarshalText([]byte(e[variable+"_TAGS"]))
		fs.mistake(err != nil, variable+"_TAGS", fmt.Sprint(err))
		s.Telemetry.Mogrifiers = append(s.Telemetry.Mogrifiers, m)
	}
	return fs
}
