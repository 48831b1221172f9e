package service

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Settings are all environment variables. Where envoyproxy/ratelimit has a name for a thing it is that name, with its default
// and meaning. The field tags are the documentation: `extauthz settings` prints them, and docs/reference/settings.md has the same table.
// The tag words lists the words that a setting accepts. A field with the tag secret can also come from the file that NAME_FILE names,
// and is never printed. The tag trial marks settings that are of use with the built-in sample, which is not served if any other
// setting is set (useSample).
type Settings struct {
	environment Environment // what the settings were read from

	// Listeners.
	Host               string        `env:"HOST" trial:"loopback" default:"0.0.0.0" desc:"address of the HTTP listener (/json, /healthcheck, /livez, /readyz)"`
	Port               uint16        `env:"PORT" trial:"any" default:"8080" desc:"port of the HTTP listener"`
	GRPCHost           string        `env:"GRPC_HOST" trial:"loopback" default:"0.0.0.0" desc:"address of the gRPC listener"`
	GRPCPort           uint16        `env:"GRPC_PORT" trial:"any" default:"8081" desc:"port of the gRPC listener"`
	GRPCUDS            string        `env:"GRPC_UDS" desc:"path of a Unix socket to serve gRPC on, in place of host and port"`
	Plaintext          string        `env:"GRPC_PLAINTEXT" words:"allow" desc:"allow: with STRICT_ENVIRONMENT, let other machines reach the gRPC and HTTP listeners, which have no TLS; for where a network policy or a mesh protects them"`
	DebugHost          string        `env:"DEBUG_HOST" trial:"loopback" default:"127.0.0.1" desc:"address of the debug listener (/metrics, /rlconfig)"`
	DebugPort          uint16        `env:"DEBUG_PORT" trial:"any" default:"6070" desc:"port of the debug listener"`
	Pprof              bool          `env:"DEBUG_PPROF" trial:"any" default:"false" desc:"serve profiles (/debug/pprof): on the debug listener when that is on loopback, else on DEBUG_PPROF_PORT"`
	PprofPort          uint16        `env:"DEBUG_PPROF_PORT" trial:"any" default:"6060" desc:"port on 127.0.0.1 for profiles, used when DEBUG_HOST lets other machines reach the debug listener"`
	MaxConnAge         time.Duration `env:"GRPC_MAX_CONNECTION_AGE" default:"24h" desc:"age at which a gRPC connection is asked to go, so that Envoys spread over replicas"`
	MaxConnGrace       time.Duration `env:"GRPC_MAX_CONNECTION_AGE_GRACE" default:"1h" desc:"time until such a connection is closed"`
	MaxConnections     int           `env:"GRPC_MAX_CONNECTIONS" default:"0" desc:"most gRPC connections; one more closes the longest idle one of the address with the most; 0: by the memory limit, 500 to 10,000"`
	HTTPMaxConnections int           `env:"HTTP_MAX_CONNECTIONS" default:"0" desc:"the same for the HTTP listener; 0: half as many"`
	DrainDelay         time.Duration `env:"DRAIN_DELAY" trial:"any" default:"5s" desc:"on SIGTERM: how long to go on serving as not healthy, until every Envoy has noticed"`
	DrainTimeout       time.Duration `env:"DRAIN_TIMEOUT" trial:"any" default:"25s" desc:"how long to wait after that for requests in flight"`

	// Logs.
	LogLevel        logLevel `env:"LOG_LEVEL" trial:"any" default:"WARN" desc:"DEBUG, INFO, WARN or ERROR"`
	LogFormat       string   `env:"LOG_FORMAT" words:"text json" trial:"any" default:"text" desc:"text or json"`
	LogClientValues bool     `env:"LOG_CLIENT_VALUES" default:"false" desc:"log with each decision (LOG_LEVEL=DEBUG) also what the client has chosen: address, method, host, path without query, x-request-id, and the owner and plan of its credential"`

	// StrictEnvironment is not the default, because deployments of envoyproxy/ratelimit set variables that no program reads.
	StrictEnvironment bool `env:"STRICT_ENVIRONMENT" default:"false" desc:"refuse to start with an environment variable that is no setting and none of the platform's, such as PATH or HOME: a misspelt one, mostly"`

	// Rules.
	ConfigType          string `env:"CONFIG_TYPE" words:"FILE" default:"FILE" desc:"where rules come from: FILE"`
	RuntimeRoot         string `env:"RUNTIME_ROOT" default:"/srv/runtime_data/current" desc:"the rule files are those in RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY; when there is no such directory and nothing at all is configured, the built-in sample is served"`
	RuntimeSubdirectory string `env:"RUNTIME_SUBDIRECTORY" desc:"see RUNTIME_ROOT"`
	RuntimeAppdirectory string `env:"RUNTIME_APPDIRECTORY" default:"config" desc:"see RUNTIME_ROOT"`
	IgnoreDotfiles      bool   `env:"RUNTIME_IGNOREDOTFILES" default:"false" desc:"leave out files whose names begin with a dot (those with two dots, as in ConfigMaps, always are)"`
	MergeDomains        bool   `env:"MERGE_DOMAIN_CONFIG" default:"false" desc:"put rules of several files for one domain together; else that is an error"`
	RequireEnd          bool   `env:"RULES_REQUIRE_END" default:"false" desc:"refuse a rule file whose last key is not end: true, so that one that was cut off is found, also at the start; extauthz check does the same"`
	ForceStart          bool   `env:"FORCE_START_WITHOUT_INITIAL_CONFIG" default:"false" desc:"start although the rule files have mistakes: everything passes until they are fixed"`

	// Limits.
	Compatibility    string                     `env:"COMPATIBILITY" words:"default strict" default:"default" desc:"strict: decide as envoyproxy/ratelimit also in the five ways in which extauthz differs on purpose (docs/compatibility.md)"`
	DefaultAlgorithm bucket.Algorithm           `env:"DEFAULT_ALGORITHM" default:"sliding_window" desc:"algorithm of limits that name none (fixed_window when strict); sliding_window is sliding_window_log up to 20 requests per window, sliding_window_counter above"`
	StoreErrorPolicy ratelimit.StoreErrorPolicy `env:"STORE_ERROR_POLICY" default:"local" desc:"who decides when the store cannot: local (this process, by the full limit), allow, deny"`
	ShadowMode       bool                       `env:"SHADOW_MODE" default:"false" desc:"decide and count, but let every request pass"`
	QuotaMode        bool                       `env:"QUOTA_MODE" default:"false" desc:"treat every rule as quota_mode"`
	KeyPrefix        string                     `env:"CACHE_KEY_PREFIX" desc:"begins every bucket's key"`
	MaxHeldPerBucket int                        `env:"MAX_HELD_PER_BUCKET" default:"0" desc:"most requests that wait in one bucket at once for max_delay, so that no client takes all places of AUTHZ_MAX_HELD; one more is denied and not charged; 0: a tenth of AUTHZ_MAX_HELD"`

	// Answers.
	ResponseHeaders headerSets `env:"RESPONSE_HEADERS" default:"draft" desc:"headers for the client: draft (RateLimit), triple (RateLimit-Limit, ...), x (X-RateLimit-Limit, ...), spring, several with commas, or off (off when strict)"`
	HeadersEnabled  bool       `env:"LIMIT_RESPONSE_HEADERS_ENABLED" default:"false" desc:"adds triple to RESPONSE_HEADERS"`
	LimitHeader     headerName `env:"LIMIT_LIMIT_HEADER" default:"RateLimit-Limit" desc:"name of the limit in triple"`
	RemainingHeader headerName `env:"LIMIT_REMAINING_HEADER" default:"RateLimit-Remaining" desc:"name of the remaining hits in triple"`
	ResetHeader     headerName `env:"LIMIT_RESET_HEADER" default:"RateLimit-Reset" desc:"name of the seconds until the reset in triple"`
	ResponseBody    string     `env:"RESPONSE_BODY" words:"problem off" default:"problem" desc:"body of a denial: problem (RFC 9457 problem+json) or off (off when strict)"`
	DynamicMetadata bool       `env:"RESPONSE_DYNAMIC_METADATA" default:"false" desc:"tell Envoy the descriptors, the rule that decided and its metadata"`

	// Authorization.
	AuthzDomain     string        `env:"AUTHZ_DOMAIN" desc:"domain of ext_authz requests whose route names none in context_extensions; default: the only one with an authz section"`
	MaxHeld         int           `env:"AUTHZ_MAX_HELD" default:"1000" desc:"most answers that are held at once for max_delay; beyond, a request that is early is denied"`
	HTTPTimeout     time.Duration `env:"AUTHZ_HTTP_TIMEOUT" trial:"any" default:"200ms" desc:"how long Envoy waits for /check, which it does not tell over HTTP (server_uri.timeout)"`
	SourceHeader    headerName    `env:"AUTHZ_HTTP_SOURCE_HEADER" trial:"any" desc:"header in which Envoy tells /check the address of the peer; default: not known"`
	PrincipalHeader headerName    `env:"AUTHZ_HTTP_PRINCIPAL_HEADER" desc:"header in which Envoy tells /check the identity in the client's certificate; default: not known"`

	// API keys.
	KeysFile     string        `env:"API_KEYS_FILE" desc:"file of API keys (extauthz keys create); with Redis they can be there, too"`
	KeySecret    string        `env:"API_KEY_SECRET" secret:"true" desc:"server secret under which API keys are hashed, 16 bytes or more: extauthz keys secret"`
	KeySecretOld string        `env:"API_KEY_SECRET_PREVIOUS" secret:"true" desc:"the one before it, while it is being replaced: keys made with it stay valid"`
	KeysMaxAge   time.Duration `env:"API_KEYS_MAX_AGE" default:"24h" desc:"how long API keys from Redis stay valid while Redis cannot be read or is not as extauthz keys left it; then their requests get 503; 0: no limit"`

	// The embedded store.
	BackendType    string        `env:"BACKEND_TYPE" words:"memory redis" desc:"memory or redis; default: redis when REDIS_URL is set, else memory"`
	MaxBuckets     int           `env:"MEMORY_MAX_BUCKETS" default:"1000000" desc:"most buckets in memory; when full, a new bucket replaces a little used one of the rule that has the most buckets"`
	SnapshotPath   string        `env:"MEMORY_SNAPSHOT_PATH" desc:"file to keep the buckets in over a restart, written on shutdown and every minute"`
	RedisURL       string        `env:"REDIS_URL" secret:"url" desc:"redis://[user:password@]host:port[/db], rediss://..., unix:///path, host:port or /path"`
	RedisSocket    string        `env:"REDIS_SOCKET_TYPE" words:"tcp tls unix" desc:"tcp, tls or unix, for a REDIS_URL that does not say"`
	RedisType      string        `env:"REDIS_TYPE" words:"SINGLE" default:"SINGLE" desc:"SINGLE"`
	RedisAuth      string        `env:"REDIS_AUTH" secret:"true" desc:"password, or user:password"`
	RedisTLS       bool          `env:"REDIS_TLS" default:"false" desc:"speak TLS with Redis"`
	RedisCACert    string        `env:"REDIS_TLS_CACERT" desc:"file of the CA that signed Redis' certificate; default: those of the system"`
	RedisCert      string        `env:"REDIS_TLS_CLIENT_CERT" desc:"file of this service's certificate for Redis"`
	RedisKey       string        `env:"REDIS_TLS_CLIENT_KEY" desc:"file of its key"`
	RedisSkipHost  bool          `env:"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION" default:"false" desc:"do not check that Redis' certificate is for its host"`
	RedisPoolSize  int           `env:"REDIS_POOL_SIZE" default:"10" desc:"most connections for decisions; more than 3 are not used, since requests share them"`
	RedisTimeout   time.Duration `env:"REDIS_TIMEOUT" default:"8ms" desc:"most that a decision waits for Redis, also bounded by the caller's deadline less 3 ms; then STORE_ERROR_POLICY or on_store_error answers"`
	HealthyConfigs bool          `env:"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED" default:"false" desc:"not healthy while there are no rules"`
}

// Setting describes a setting.
type Setting struct {
	Name    string `json:"name"`
	Default string `json:"default,omitempty"`
	Meaning string `json:"meaning"`
	// File says that the value can also come from the file that NAME_FILE names.
	File bool `json:"file,omitempty"`
}

// List describes all settings, in the order in which they are documented.
func List() (list []Setting) {
	for _, f := range fields() {
		list = append(list, Setting{
			Name: f.Tag.Get("env"), Default: f.Tag.Get("default"), Meaning: f.Tag.Get("desc"), File: f.Tag.Get("secret") != "",
		})
	}
	return list
}

// rulesDirectory is where the rule files are.
func (s *Settings) rulesDirectory() string {
	return filepath.Join(s.RuntimeRoot, s.RuntimeSubdirectory, s.RuntimeAppdirectory)
}

// maxHeldPerBucket is never 0, which would be no bound.
func (s *Settings) maxHeldPerBucket() int64 {
	const share = 10
	return int64(cmp.Or(s.MaxHeldPerBucket, max(1, s.MaxHeld/share)))
}

func (s *Settings) strict() bool { return s.Compatibility == "strict" }

// headers are the sets to send.
func (s *Settings) headers() reply.Headers {
	sets := []reply.Set(s.ResponseHeaders)
	if s.HeadersEnabled && !slices.Contains(sets, reply.Triple) {
		sets = append(sets, reply.Triple)
	}
	return reply.Headers{
		Sets: sets, LimitName: string(s.LimitHeader), RemainingName: string(s.RemainingHeader), ResetName: string(s.ResetHeader),
	}
}
