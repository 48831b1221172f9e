package service

import (
	"cmp"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// Settings has all environment variables. A setting of envoyproxy/ratelimit keeps its name, default and meaning. The
// field tags are the documentation: `extauthz settings` prints them, and docs/reference/settings.md has the same table.
// The tag words lists the words that a setting accepts. A field with the tag secret can also come from the file that
// NAME_FILE names, and is never printed. The tag trial marks settings that fit the built-in sample, which is not served
// if any other setting is set (useSample).
type Settings struct {
	environment Environment           // the variables that the settings were read from
	mogrifiers  []telemetry.Mogrifier // of MogrifierNames

	// Listeners.
	Host               string        `env:"HOST" trial:"loopback" default:"0.0.0.0" example:"127.0.0.1" group:"Listeners" desc:"address of the HTTP listener (/json, /check, /healthcheck, /livez, /readyz)"`
	Port               uint16        `env:"PORT" trial:"any" default:"8080" example:"9080" desc:"port of the HTTP listener"`
	GRPCHost           string        `env:"GRPC_HOST" trial:"loopback" default:"0.0.0.0" example:"127.0.0.1" desc:"address of the gRPC listener"`
	GRPCPort           uint16        `env:"GRPC_PORT" trial:"any" default:"8081" example:"9081" desc:"port of the gRPC listener"`
	GRPCUDS            string        `env:"GRPC_UDS" example:"/run/extauthz/grpc.sock" desc:"path of a Unix socket to serve gRPC on, in place of GRPC_HOST and GRPC_PORT"`
	GRPCUseTLS         bool          `env:"GRPC_SERVER_USE_TLS" default:"false" example:"true" desc:"serve gRPC with TLS 1.2 or later; needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY"`
	GRPCCert           string        `env:"GRPC_SERVER_TLS_CERT" example:"/certs/tls.crt" desc:"file of the certificate of the gRPC listener, with its chain; each new connection reads it again"`
	GRPCKey            string        `env:"GRPC_SERVER_TLS_KEY" example:"/certs/tls.key" desc:"file of the key of GRPC_SERVER_TLS_CERT"`
	GRPCClientCA       string        `env:"GRPC_CLIENT_TLS_CACERT" example:"/certs/ca.crt" desc:"file of the CAs that sign the certificates of clients; a client without such a certificate is refused; each new connection reads it again; default: clients need no certificate"`
	GRPCClientSAN      string        `env:"GRPC_CLIENT_TLS_SAN" example:"spiffe://example.org/envoy" desc:"name that the certificate of each client must have: a DNS name, an IP address or a URI; needs GRPC_CLIENT_TLS_CACERT"`
	Transport          string        `env:"GRPC_TRANSPORT" words:"native grpc-go" trial:"any" default:"native" example:"grpc-go" desc:"server of the gRPC listener: native, or grpc-go, which takes a multiple of its CPU (docs/transport.md)"`
	Plaintext          string        `env:"GRPC_PLAINTEXT" words:"allow" example:"allow" desc:"allow: permit gRPC and HTTP listeners without TLS that other machines can reach, which STRICT_ENVIRONMENT refuses; only behind a network policy or a mesh"`
	DebugHost          string        `env:"DEBUG_HOST" trial:"loopback" default:"127.0.0.1" example:"0.0.0.0" desc:"address of the debug listener (/metrics, /rlconfig)"`
	DebugPort          uint16        `env:"DEBUG_PORT" trial:"any" default:"6070" example:"7070" desc:"port of the debug listener"`
	Pprof              bool          `env:"DEBUG_PPROF" trial:"any" default:"false" example:"true" desc:"serve profiles (/debug/pprof): on the debug listener if that is on loopback, else on DEBUG_PPROF_PORT"`
	PprofPort          uint16        `env:"DEBUG_PPROF_PORT" trial:"any" default:"6060" example:"7060" desc:"port of 127.0.0.1 for profiles if other machines can reach the debug listener"`
	MaxConnAge         time.Duration `env:"GRPC_MAX_CONNECTION_AGE" default:"24h" example:"1h" desc:"age at which the service asks a client to close its gRPC connection, so that Envoys spread over the replicas; 0: no maximum"`
	MaxConnGrace       time.Duration `env:"GRPC_MAX_CONNECTION_AGE_GRACE" default:"1h" example:"10m" desc:"time after GRPC_MAX_CONNECTION_AGE until the connection is closed; 0: it stays open until its requests have ended"`
	MaxConnections     int           `env:"GRPC_MAX_CONNECTIONS" default:"0" example:"2000" desc:"maximum number of gRPC connections; one more closes the longest idle connection of the address with the most connections; 0: 500 to 10,000 by the memory limit"`
	MaxStreams         int           `env:"GRPC_MAX_CONCURRENT_STREAMS" default:"1024" example:"256" desc:"maximum number of requests in flight on one gRPC connection; a client waits with the next one, or opens another connection"`
	HTTPMaxConnections int           `env:"HTTP_MAX_CONNECTIONS" default:"0" example:"1000" desc:"maximum number of HTTP connections, as GRPC_MAX_CONNECTIONS; 0: half of the gRPC connections"`
	DrainDelay         time.Duration `env:"DRAIN_DELAY" trial:"any" default:"5s" example:"10s" desc:"time after SIGTERM in which the service still answers but reports NOT_SERVING, so that every Envoy notices"`
	DrainTimeout       time.Duration `env:"DRAIN_TIMEOUT" trial:"any" default:"25s" example:"1m" desc:"maximum wait for requests in flight after DRAIN_DELAY"`

	// Logs.
	LogLevel        logLevel `env:"LOG_LEVEL" trial:"any" default:"WARN" example:"INFO" group:"Logs" desc:"minimum level of log lines: DEBUG (each decision), INFO (refused requests), WARN or ERROR"`
	LogFormat       string   `env:"LOG_FORMAT" words:"text json" trial:"any" default:"text" example:"json" desc:"format of log lines: text or json"`
	LogClientValues bool     `env:"LOG_CLIENT_VALUES" default:"false" example:"true" desc:"also log values of the client with each decision: address, method, host, path without query, x-request-id, and the owner and plan of its credential; with LOG_LEVEL=DEBUG also the values of descriptors, which can be credentials"`

	// Metrics.
	DisableStats   bool           `env:"DISABLE_STATS" default:"false" example:"true" group:"Metrics" desc:"send no statistics to statsd, and do not listen on PROMETHEUS_ADDR; /metrics of the debug port stays"`
	UsePrometheus  bool           `env:"USE_PROMETHEUS" default:"false" example:"true" desc:"serve metrics on PROMETHEUS_ADDR, too; they are always at /metrics of the debug port"`
	PrometheusAddr hostPort       `env:"PROMETHEUS_ADDR" default:":9090" example:":19001" desc:"address and port of the listener for Prometheus, with USE_PROMETHEUS"`
	PrometheusPath urlPath        `env:"PROMETHEUS_PATH" default:"/metrics" example:"/stats/prometheus" desc:"path of the metrics on PROMETHEUS_ADDR"`
	MetricMapping  string         `env:"PROMETHEUS_MAPPER_YAML" example:"/etc/statsd-exporter/conf.yaml" desc:"file in the format of statsd_exporter that names the metrics of envoyproxy/ratelimit; default: its usual names; they also apply if the file does not exist"`
	Milliseconds   bool           `env:"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS" default:"false" example:"true" desc:"ratelimit_service_response_time_seconds is in milliseconds, as in older versions of envoyproxy/ratelimit; without effect if PROMETHEUS_MAPPER_YAML is set"`
	NearLimitRatio limitShare     `env:"NEAR_LIMIT_RATIO" default:"0.8" example:"0.9" desc:"share of a limit above which its hits count as near_limit"`
	MetricValues   int            `env:"METRIC_VALUES_MAX" default:"1000" example:"100" desc:"maximum number of values of clients that are labels of metrics, for each rule with detailed_metric or value_to_metric; further values are counted as other"`
	UseStatsd      bool           `env:"USE_STATSD" default:"true" example:"false" desc:"send the statistics of envoyproxy/ratelimit to a statsd server; false unless set if USE_PROMETHEUS or USE_DOG_STATSD is set, and for the built-in sample"`
	UseDogStatsd   bool           `env:"USE_DOG_STATSD" default:"false" example:"true" desc:"send them to a DogStatsD server, by UDP"`
	StatsdHost     string         `env:"STATSD_HOST" default:"localhost" example:"statsd" desc:"host of the statsd or DogStatsD server"`
	StatsdPort     uint16         `env:"STATSD_PORT" default:"8125" example:"9125" desc:"its port"`
	StatsdProtocol string         `env:"STATSD_PROTOCOL" words:"tcp udp" default:"tcp" example:"udp" desc:"tcp or udp, for USE_STATSD"`
	FlushInterval  time.Duration  `env:"STATS_FLUSH_INTERVAL" default:"10s" example:"1m" desc:"how often the growth of the counters is sent"`
	ExtraTags      tags           `env:"EXTRA_TAGS" example:"cluster:east,stage:test" desc:"tags of each statistic that is sent"`
	MogrifierNames mogrifierNames `env:"USE_DOG_STATSD_MOGRIFIERS" example:"HITS" desc:"names of rules that make names and tags of statistics for DogStatsD, with commas; DOG_STATSD_MOGRIFIER_<name>_PATTERN is a regular expression, _NAME the new name, and _TAGS key:value pairs with commas; $1 stands for the first group of the pattern"`

	// Traces.
	TracingEnabled    bool   `env:"TRACING_ENABLED" default:"false" example:"true" group:"Traces" desc:"send a span of each request to a collector of OpenTelemetry; its SDK reads the standard variables, such as OTEL_EXPORTER_OTLP_ENDPOINT"`
	TracingName       string `env:"TRACING_SERVICE_NAME" default:"RateLimit" example:"extauthz" desc:"service.name of the spans; OTEL_SERVICE_NAME also sets it"`
	TracingNamespace  string `env:"TRACING_SERVICE_NAMESPACE" example:"shop" desc:"service.namespace of the spans"`
	TracingInstanceID string `env:"TRACING_SERVICE_INSTANCE_ID" example:"replica-1" desc:"service.instance.id of the spans; default: a random text"`
	TracingProtocol   string `env:"TRACING_EXPORTER_PROTOCOL" words:"http grpc" default:"http" example:"grpc" desc:"protocol of the collector (OTLP): http or grpc"`
	TracingRate       share  `env:"TRACING_SAMPLING_RATE" default:"1" example:"0.1" desc:"share of requests that have a span, 0 to 1; a request whose caller samples it always has one, and one whose caller does not, never"`

	// StrictEnvironment is not the default, because deployments of envoyproxy/ratelimit set variables that no program
	// reads.
	StrictEnvironment bool `env:"STRICT_ENVIRONMENT" default:"false" example:"true" group:"Start" desc:"refuse to start if a variable is neither a setting nor one of the platform, such as PATH; it is usually a misspelled setting"`

	// Rules.
	ConfigType          string `env:"CONFIG_TYPE" words:"FILE GRPC_XDS_SOTW" default:"FILE" example:"GRPC_XDS_SOTW" group:"Rules" desc:"source of the rules: FILE, or GRPC_XDS_SOTW for an xDS server (docs/xds.md)"`
	RuntimeRoot         string `env:"RUNTIME_ROOT" default:"/srv/runtime_data/current" example:"/etc/extauthz" desc:"first part of the rule directory, RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY; if it does not exist and nothing is configured, the built-in sample is served"`
	RuntimeSubdirectory string `env:"RUNTIME_SUBDIRECTORY" example:"ratelimit" desc:"second part of the rule directory, see RUNTIME_ROOT"`
	RuntimeAppdirectory string `env:"RUNTIME_APPDIRECTORY" default:"config" example:"rules" desc:"last part of the rule directory, see RUNTIME_ROOT"`
	IgnoreDotfiles      bool   `env:"RUNTIME_IGNOREDOTFILES" default:"false" example:"true" desc:"skip files whose names begin with a dot; names that begin with two dots, as in ConfigMaps, are always skipped"`
	MergeDomains        bool   `env:"MERGE_DOMAIN_CONFIG" default:"false" example:"true" desc:"merge the rules of several files for one domain; if false, a second file for a domain is a mistake"`
	RequireEnd          bool   `env:"RULES_REQUIRE_END" default:"false" example:"true" desc:"refuse a rule file whose last key is not end: true, because the file may be cut off; extauthz check does the same"`
	ForceStart          bool   `env:"FORCE_START_WITHOUT_INITIAL_CONFIG" default:"false" example:"true" desc:"start even if the rule files have mistakes, or before the xDS server has sent rules; until there are rules, each call of the rate limit service fails, so that failure_mode_deny of Envoy decides, and ext_authz refuses every request"`

	// Rules from an xDS server.
	XDSServer       string        `env:"CONFIG_GRPC_XDS_SERVER_URL" default:"localhost:18000" example:"envoy-gateway:18001" group:"Rules from an xDS server" desc:"address of the xDS server, host:port"`
	XDSNodeID       string        `env:"CONFIG_GRPC_XDS_NODE_ID" default:"default" example:"envoy-ratelimit" desc:"id of the node, by which the xDS server chooses the rules"`
	XDSNodeMetadata nodeMetadata  `env:"CONFIG_GRPC_XDS_NODE_METADATA" example:"team=shop,zone=a" desc:"metadata of the node: key=value pairs with commas, or a JSON object"`
	XDSHeaders      string        `env:"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS" secret:"true" example:"x-team:shop,x-zone:a" desc:"headers for the xDS server, name:value pairs with commas"`
	XDSTLS          bool          `env:"CONFIG_GRPC_XDS_SERVER_USE_TLS" default:"false" example:"true" desc:"connect to the xDS server with TLS"`
	XDSCert         string        `env:"CONFIG_GRPC_XDS_CLIENT_TLS_CERT" example:"/certs/tls.crt" desc:"file of the certificate that this service shows to the xDS server; each connection reads it again"`
	XDSKey          string        `env:"CONFIG_GRPC_XDS_CLIENT_TLS_KEY" example:"/certs/tls.key" desc:"file of the key of CONFIG_GRPC_XDS_CLIENT_TLS_CERT"`
	XDSCACert       string        `env:"CONFIG_GRPC_XDS_SERVER_TLS_CACERT" example:"/certs/ca.crt" desc:"file of the CA that signed the certificate of the xDS server; default: the CAs of the system"`
	XDSSAN          string        `env:"CONFIG_GRPC_XDS_SERVER_TLS_SAN" example:"envoy-gateway" desc:"name that the certificate of the xDS server must have; default: the host of CONFIG_GRPC_XDS_SERVER_URL"`
	XDSOverlay      string        `env:"CONFIG_GRPC_XDS_OVERLAY" example:"/etc/extauthz/overlay.yaml" desc:"file with the keys that rules of an xDS server lack, such as algorithm, and with policies of ext_authz (docs/xds.md)"`
	XDSConnect      time.Duration `env:"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL" default:"3s" example:"1s" desc:"time between attempts to connect to the xDS server; it varies by half at random"`
	XDSBackoff      time.Duration `env:"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL" default:"10s" example:"1s" desc:"time until the service connects again after the xDS server has ended the stream; it doubles while streams fail"`
	XDSMaxBackoff   time.Duration `env:"XDS_CLIENT_BACKOFF_MAX_INTERVAL" default:"60s" example:"30s" desc:"the longest such time"`
	XDSRandomFactor float64       `env:"XDS_CLIENT_BACKOFF_RANDOM_FACTOR" default:"0.5" example:"0.2" desc:"share of that time by which it varies at random; 1 and more: between 0 and twice the time"`
	XDSJitter       bool          `env:"XDS_CLIENT_BACKOFF_JITTER" default:"true" example:"false" desc:"whether that time varies at random"`
	XDSMaxMessage   int           `env:"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES" example:"8388608" desc:"largest response of the xDS server in bytes; default: 4 MiB"`

	// Limits.
	Compatibility    string                     `env:"COMPATIBILITY" words:"default strict" default:"default" example:"strict" group:"Limits" desc:"strict: decide and answer as envoyproxy/ratelimit does, also where the default differs (docs/compatibility.md)"`
	DefaultAlgorithm bucket.Algorithm           `env:"DEFAULT_ALGORITHM" default:"sliding_window" example:"token_bucket" desc:"algorithm of limits that name none; fixed_window if COMPATIBILITY=strict; sliding_window is sliding_window_log up to 20 requests per window, sliding_window_counter above"`
	StoreErrorPolicy ratelimit.StoreErrorPolicy `env:"STORE_ERROR_POLICY" default:"local" example:"deny" desc:"answer if the store cannot decide: local (this process decides, from the last state of each bucket that Redis has shown), allow or deny"`
	ShadowMode       bool                       `env:"SHADOW_MODE" default:"false" example:"true" desc:"decide and count, but allow requests over a limit"`
	QuotaMode        bool                       `env:"QUOTA_MODE" default:"false" example:"true" desc:"treat every rule as one with quota_mode"`
	StopWhenOver     bool                       `env:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT" default:"false" example:"true" desc:"with COMPATIBILITY=strict, charge only the limits that a request exceeds, if there are any, in place of all its limits; takes a second round trip to Redis. Otherwise a denied request charges none anyway"`
	KeyPrefix        string                     `env:"CACHE_KEY_PREFIX" example:"shop:" desc:"prefix of the key of every bucket"`
	MaxHeldPerBucket int                        `env:"MAX_HELD_PER_BUCKET" default:"0" example:"500" desc:"maximum number of requests that wait in one bucket for its max_delay, so that no client takes all places of AUTHZ_MAX_HELD; further requests are denied and not charged; 0: a tenth of AUTHZ_MAX_HELD"`

	// Answers.
	ResponseHeaders headerSets `env:"RESPONSE_HEADERS" default:"draft" example:"draft,x" group:"Answers" desc:"headers for the client: draft (RateLimit), triple (RateLimit-Limit, ...), x (X-RateLimit-Limit, ...), spring, several with commas, or off; off if COMPATIBILITY=strict"`
	HeadersEnabled  bool       `env:"LIMIT_RESPONSE_HEADERS_ENABLED" default:"false" example:"true" desc:"add triple to RESPONSE_HEADERS"`
	LimitHeader     headerName `env:"LIMIT_LIMIT_HEADER" default:"RateLimit-Limit" example:"X-Limit" desc:"name of the header with the limit, in triple"`
	RemainingHeader headerName `env:"LIMIT_REMAINING_HEADER" default:"RateLimit-Remaining" example:"X-Remaining" desc:"name of the header with the remaining hits, in triple"`
	ResetHeader     headerName `env:"LIMIT_RESET_HEADER" default:"RateLimit-Reset" example:"X-Reset" desc:"name of the header with the seconds until the reset, in triple"`
	ResponseBody    string     `env:"RESPONSE_BODY" words:"problem off" default:"problem" example:"off" desc:"body of a denial: problem (RFC 9457 problem+json) or off; off if COMPATIBILITY=strict"`
	DynamicMetadata bool       `env:"RESPONSE_DYNAMIC_METADATA" default:"false" example:"true" desc:"send Envoy the descriptors, the rule that decided and its metadata"`

	// Authorization.
	AuthzDomain     string        `env:"AUTHZ_DOMAIN" example:"shop" group:"Authorization" desc:"domain of ext_authz requests whose route names none in context_extensions; default: the only domain with an authz section"`
	MaxHeld         int           `env:"AUTHZ_MAX_HELD" default:"1000" example:"5000" desc:"maximum number of responses that are held at once for max_delay; further early requests are denied"`
	HTTPTimeout     time.Duration `env:"AUTHZ_HTTP_TIMEOUT" trial:"any" default:"200ms" example:"500ms" desc:"how long Envoy waits for /check: set the value of server_uri.timeout, because Envoy does not send it over HTTP"`
	SourceHeader    headerName    `env:"AUTHZ_HTTP_SOURCE_HEADER" trial:"any" example:"x-peer-address" desc:"header in which Envoy sends /check the address of the peer; default: the address is unknown"`
	PrincipalHeader headerName    `env:"AUTHZ_HTTP_PRINCIPAL_HEADER" example:"x-peer-principal" desc:"header in which Envoy sends /check the principal of the client certificate; default: the principal is unknown"`

	// API keys.
	KeysFile     string        `env:"API_KEYS_FILE" example:"/etc/extauthz/keys.jsonl" group:"API keys" desc:"file of API keys (extauthz keys create); with Redis, keys can also be there"`
	KeySecret    string        `env:"API_KEY_SECRET" secret:"true" example:"what-extauthz-keys-secret-prints" desc:"server secret with which API keys are hashed, 16 bytes or more; extauthz keys secret makes one"`
	KeySecretOld string        `env:"API_KEY_SECRET_PREVIOUS" secret:"true" example:"what-it-printed-before" desc:"the previous API_KEY_SECRET while it is being replaced: keys made with it stay valid"`
	KeysMaxAge   time.Duration `env:"API_KEYS_MAX_AGE" default:"24h" example:"1h" desc:"how long API keys from Redis stay valid while Redis is unreachable, or has keys that extauthz keys has not signed; after that, requests with these keys get 503; 0: no limit"`

	// The embedded store.
	BackendType           string        `env:"BACKEND_TYPE" words:"memory redis" example:"redis" group:"Store" desc:"store of the buckets: memory or redis; default: redis if REDIS_URL is set, else memory"`
	MaxBuckets            int           `env:"MEMORY_MAX_BUCKETS" default:"1000000" example:"5000000" desc:"maximum number of buckets in memory, with Redis of those that are remembered; beyond that, a new bucket replaces a little used one of the rule with the most buckets"`
	SnapshotPath          string        `env:"MEMORY_SNAPSHOT_PATH" example:"/var/lib/extauthz/buckets" desc:"file that keeps the buckets over a restart; the service writes it every minute and on shutdown"`
	RedisURL              string        `env:"REDIS_URL" secret:"url" example:"redis://redis:6379/0" desc:"address of Redis: redis://[user:password@]host:port[/db], rediss://..., unix:///path, host:port or /path; REDIS_TYPE=SENTINEL: master,host:port,host:port (the name of the master, and sentinels); REDIS_TYPE=CLUSTER: host:port,host:port"`
	RedisSocket           string        `env:"REDIS_SOCKET_TYPE" words:"tcp tls unix" example:"tcp" desc:"tcp, tls or unix, for a REDIS_URL without a scheme"`
	RedisType             string        `env:"REDIS_TYPE" words:"SINGLE SENTINEL CLUSTER" default:"SINGLE" example:"CLUSTER" desc:"kind of Redis: SINGLE, SENTINEL or CLUSTER; it sets the form of REDIS_URL"`
	RedisAuth             string        `env:"REDIS_AUTH" secret:"true" example:"limiter:password" desc:"password of Redis, or user:password"`
	RedisSentinelAuth     string        `env:"REDIS_SENTINEL_AUTH" secret:"true" example:"limiter:password" desc:"password of the sentinels, or user:password"`
	RedisTLS              bool          `env:"REDIS_TLS" default:"false" example:"true" desc:"connect to Redis with TLS"`
	RedisCACert           string        `env:"REDIS_TLS_CACERT" example:"/etc/extauthz/redis-ca.pem" desc:"file of the CA that signed the certificate of Redis; default: the CAs of the system"`
	RedisCert             string        `env:"REDIS_TLS_CLIENT_CERT" example:"/etc/extauthz/redis-cert.pem" desc:"file of the certificate that this service shows to Redis"`
	RedisKey              string        `env:"REDIS_TLS_CLIENT_KEY" example:"/etc/extauthz/redis-key.pem" desc:"file of the key of REDIS_TLS_CLIENT_CERT"`
	RedisSkipHost         bool          `env:"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION" default:"false" example:"true" desc:"do not check that the certificate of Redis is for its host"`
	RedisPoolSize         int           `env:"REDIS_POOL_SIZE" default:"10" example:"3" desc:"maximum number of connections for decisions to each Redis; at most 3 are used, because requests share them"`
	RedisTimeout          time.Duration `env:"REDIS_TIMEOUT" example:"15ms" desc:"maximum time that a decision waits for Redis; it also ends 5 ms before the deadline of the caller; after that, on_store_error or STORE_ERROR_POLICY decides; default: 50ms; with COMPATIBILITY=strict a decision waits until the deadline of the caller, and without one 10s"`
	FallbackReplicas      int           `env:"LOCAL_FALLBACK_REPLICAS" default:"1" example:"3" desc:"number of replicas that share Redis: with on_store_error: local, each hit that a replica admits without Redis counts that often, so that all replicas together admit what is left of a limit"`
	DenialCache           bool          `env:"DENIAL_CACHE" default:"true" example:"false" desc:"deny a request without asking Redis if Redis has shown within the last second that its limit is used up, and would certainly deny it"`
	RedisHealth           bool          `env:"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION" default:"false" example:"true" desc:"report NOT_SERVING while no Redis answers, instead of deciding without it"`
	PerSecond             bool          `env:"REDIS_PERSECOND" default:"false" example:"true" desc:"keep the buckets of windows shorter than a minute (unit: second) in a second Redis, REDIS_PERSECOND_URL; it has the certificates of REDIS_TLS_CACERT and REDIS_TLS_CLIENT_CERT, too"`
	PerSecondURL          string        `env:"REDIS_PERSECOND_URL" secret:"url" example:"redis://redis-second:6379" desc:"as REDIS_URL, for the second Redis"`
	PerSecondSocket       string        `env:"REDIS_PERSECOND_SOCKET_TYPE" words:"tcp tls unix" example:"tcp" desc:"as REDIS_SOCKET_TYPE, for the second Redis"`
	PerSecondType         string        `env:"REDIS_PERSECOND_TYPE" words:"SINGLE SENTINEL CLUSTER" default:"SINGLE" example:"CLUSTER" desc:"as REDIS_TYPE, for the second Redis"`
	PerSecondAuth         string        `env:"REDIS_PERSECOND_AUTH" secret:"true" example:"limiter:password" desc:"as REDIS_AUTH, for the second Redis"`
	PerSecondSentinelAuth string        `env:"REDIS_PERSECOND_SENTINEL_AUTH" secret:"true" example:"limiter:password" desc:"as REDIS_SENTINEL_AUTH, for the second Redis"`
	PerSecondTLS          bool          `env:"REDIS_PERSECOND_TLS" default:"false" example:"true" desc:"as REDIS_TLS, for the second Redis"`
	PerSecondPoolSize     int           `env:"REDIS_PERSECOND_POOL_SIZE" default:"10" example:"3" desc:"as REDIS_POOL_SIZE, for the second Redis"`
	PerSecondTimeout      time.Duration `env:"REDIS_PERSECOND_TIMEOUT" example:"15ms" desc:"as REDIS_TIMEOUT, for the second Redis; a decision waits for the longer of the two"`
	HealthyConfigs        bool          `env:"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED" default:"false" example:"true" group:"Health" desc:"report NOT_SERVING until there are rules; an empty rule directory has none"`
}

// Setting describes a setting.
type Setting struct {
	Name    string `json:"name"`
	Default string `json:"default,omitempty"`
	Example string `json:"example"`
	Meaning string `json:"meaning"`
	// Group is the title of this setting and the next ones, or "" if the previous title continues.
	Group string `json:"-"`
	// File is true if the value can also come from the file that NAME_FILE names.
	File bool `json:"file,omitempty"`

	field reflect.StructField // of Settings
}

// List describes all settings, in the order in which they are documented.
func List() (list []Setting) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Settings]()) {
		if name, ok := f.Tag.Lookup("env"); ok {
			list = append(list, Setting{
				Name: name, Default: f.Tag.Get("default"), Example: f.Tag.Get("example"), Meaning: f.Tag.Get("desc"),
				Group: f.Tag.Get("group"), File: f.Tag.Get("secret") != "", field: f,
			})
		}
	}
	return list
}

// settingNames returns the names of all variables that the service reads, with NAME_FILE for secrets.
func settingNames() (names []string) {
	for _, s := range List() {
		names = append(names, s.Name)
		if s.File {
			names = append(names, s.Name+"_FILE")
		}
	}
	return names
}

// rulesDirectory returns the directory of the rule files.
func (s *Settings) rulesDirectory() string {
	return filepath.Join(s.RuntimeRoot, s.RuntimeSubdirectory, s.RuntimeAppdirectory)
}

// maxHeldPerBucket returns at least 1, because 0 would mean no bound.
func (s *Settings) maxHeldPerBucket() int64 {
	const share = 10
	return int64(cmp.Or(s.MaxHeldPerBucket, max(1, s.MaxHeld/share)))
}

func (s *Settings) strict() bool { return s.Compatibility == "strict" }

// headers returns the header sets to send.
func (s *Settings) headers() reply.Headers {
	sets := []reply.Set(s.ResponseHeaders)
	if s.HeadersEnabled && !slices.Contains(sets, reply.Triple) {
		sets = append(sets, reply.Triple)
	}
	return reply.Headers{
		Sets: sets, LimitName: string(s.LimitHeader), RemainingName: string(s.RemainingHeader),
		ResetName: string(s.ResetHeader),
	}
}
