package settings

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// Settings has all settings in groups. A setting of envoyproxy/ratelimit keeps its name, default and meaning. The tags
// of the fields are the documentation: `extauthz settings` prints them, and docs/reference/settings.md has the same
// tables. The tag group is the title above a setting and the next ones. The tag words lists the words that a setting
// accepts, and the tag form one of forms. The tag want is the message about a number below that of the tag min, which
// for a duration is in nanoseconds. A field with the tag secret can also come from the file that NAME_FILE names, and
// is never printed. The tag trial marks settings that fit the built-in sample, which is not served with any other.
type Settings struct {
	Listeners     Listeners
	TLS           TLS
	Rules         Rules
	XDS           XDS
	Limits        Limits
	Answers       Answers
	Authorization Authorization
	Keys          Keys
	Memory        Memory
	Redis         Redis
	Telemetry     Telemetry
	Process       Process

	// Warnings are about settings without effect, and misspelt ones.
	Warnings []Finding
}

// Listeners are the ports of the service.
type Listeners struct {
	Host               string        `envconfig:"HOST" group:"Listeners" trial:"loopback" default:"0.0.0.0" example:"127.0.0.1" desc:"address of the HTTP listener (/json, /check, /healthcheck, /livez, /readyz)"`
	Port               uint16        `envconfig:"PORT" trial:"any" default:"8080" example:"9080" desc:"port of the HTTP listener"`
	GRPCHost           string        `envconfig:"GRPC_HOST" trial:"loopback" default:"0.0.0.0" example:"127.0.0.1" desc:"address of the gRPC listener"`
	GRPCPort           uint16        `envconfig:"GRPC_PORT" trial:"any" default:"8081" example:"9081" desc:"port of the gRPC listener"`
	GRPCUDS            string        `envconfig:"GRPC_UDS" example:"/run/extauthz/grpc.sock" desc:"path of a Unix socket to serve gRPC on, in place of GRPC_HOST and GRPC_PORT"`
	Transport          string        `envconfig:"GRPC_TRANSPORT" words:"native grpc-go" trial:"any" default:"native" example:"grpc-go" desc:"server of the gRPC listener: native, or grpc-go for a client that native does not serve (please report it); grpc-go takes a multiple of the CPU and bounds no floods (docs/reference/settings.md#two-servers-of-the-grpc-port)"`
	Plaintext          string        `envconfig:"GRPC_PLAINTEXT" words:"allow" example:"allow" desc:"allow: permit gRPC and HTTP listeners without TLS that other machines can reach, which STRICT_ENVIRONMENT refuses; only behind a network policy or a mesh"`
	DebugHost          string        `envconfig:"DEBUG_HOST" trial:"loopback" default:"127.0.0.1" example:"0.0.0.0" desc:"address of the debug listener (/metrics, /rlconfig)"`
	DebugPort          uint16        `envconfig:"DEBUG_PORT" trial:"any" default:"6070" example:"7070" desc:"port of the debug listener; its page takes at most 1.6 MB of memory for its sparklines"`
	Pprof              bool          `envconfig:"DEBUG_PPROF" trial:"any" default:"false" example:"true" desc:"serve profiles (/debug/pprof): on the debug listener if that is on loopback, else on DEBUG_PPROF_PORT"`
	PprofPort          uint16        `envconfig:"DEBUG_PPROF_PORT" trial:"any" default:"6060" example:"7060" desc:"port of 127.0.0.1 for profiles if other machines can reach the debug listener"`
	MaxConnAge         time.Duration `envconfig:"GRPC_MAX_CONNECTION_AGE" default:"24h" example:"1h" desc:"age at which the service asks a client to close its gRPC connection, so that Envoys spread over the replicas; 0: no maximum"`
	MaxConnGrace       time.Duration `envconfig:"GRPC_MAX_CONNECTION_AGE_GRACE" default:"1h" min:"0" want:"want more than 0, such as 1h, or 0 for no maximum" example:"10m" desc:"time after GRPC_MAX_CONNECTION_AGE until the connection is closed; 0: it stays open until its requests have ended"`
	MaxConnections     int           `envconfig:"GRPC_MAX_CONNECTIONS" default:"0" min:"0" want:"want 1 or more, or 0 for as many as the memory limit allows" example:"2000" desc:"maximum number of gRPC connections; one more closes the longest idle connection of the address with the most connections; 0: 500 to 10,000 by the memory limit"`
	MaxStreams         int           `envconfig:"GRPC_MAX_CONCURRENT_STREAMS" default:"1024" example:"256" desc:"maximum number of requests in flight on one gRPC connection; a client waits with the next one, or opens another connection"`
	HTTPMaxConnections int           `envconfig:"HTTP_MAX_CONNECTIONS" default:"0" min:"0" want:"want 1 or more, or 0 for as many as the memory limit allows" example:"1000" desc:"maximum number of HTTP connections, as GRPC_MAX_CONNECTIONS; 0: half of the gRPC connections"`
}

// TLS is the TLS of the gRPC listener.
type TLS struct {
	Use       bool   `envconfig:"GRPC_SERVER_USE_TLS" group:"TLS of the gRPC listener" default:"false" example:"true" desc:"serve gRPC with TLS 1.2 or later; needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY"`
	Cert      string `envconfig:"GRPC_SERVER_TLS_CERT" example:"/certs/tls.crt" desc:"file of the certificate of the gRPC listener, with its chain; each new connection reads it again"`
	Key       string `envconfig:"GRPC_SERVER_TLS_KEY" example:"/certs/tls.key" desc:"file of the key of GRPC_SERVER_TLS_CERT"`
	ClientCA  string `envconfig:"GRPC_CLIENT_TLS_CACERT" example:"/certs/ca.crt" desc:"file of the CAs that sign the certificates of clients; a client without such a certificate is refused; each new connection reads it again; default: clients need no certificate"`
	ClientSAN string `envconfig:"GRPC_CLIENT_TLS_SAN" example:"spiffe://example.org/envoy" desc:"name that the certificate of each client must have: a DNS name, an IP address or a URI; needs GRPC_CLIENT_TLS_CACERT"`
}

// Rules are the source of the rules.
type Rules struct {
	ConfigType     string `envconfig:"CONFIG_TYPE" group:"Rules" words:"FILE GRPC_XDS_SOTW" default:"FILE" example:"GRPC_XDS_SOTW" desc:"source of the rules: FILE, or GRPC_XDS_SOTW for an xDS server (docs/xds.md)"`
	Root           string `envconfig:"RUNTIME_ROOT" default:"/srv/runtime_data/current" example:"/etc/extauthz" desc:"first part of the rule directory, RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY; if it does not exist and nothing is configured, the built-in sample is served"`
	Subdirectory   string `envconfig:"RUNTIME_SUBDIRECTORY" example:"ratelimit" desc:"second part of the rule directory, see RUNTIME_ROOT"`
	Appdirectory   string `envconfig:"RUNTIME_APPDIRECTORY" default:"config" example:"rules" desc:"last part of the rule directory, see RUNTIME_ROOT"`
	IgnoreDotfiles bool   `envconfig:"RUNTIME_IGNOREDOTFILES" default:"false" example:"true" desc:"skip files whose names begin with a dot; names that begin with two dots, as in ConfigMaps, are always skipped"`
	MergeDomains   bool   `envconfig:"MERGE_DOMAIN_CONFIG" default:"false" example:"true" desc:"merge the rules of several files for one domain; if false, a second file for a domain is a mistake"`
	RequireEnd     bool   `envconfig:"RULES_REQUIRE_END" default:"false" example:"true" desc:"refuse a rule file whose last key is not end: true, because the file may be cut off; extauthz check does the same"`
	ForceStart     bool   `envconfig:"FORCE_START_WITHOUT_INITIAL_CONFIG" default:"false" example:"true" desc:"start even if the rule files have mistakes, or before the xDS server has sent rules; until there are rules, each call of the rate limit service fails, so that failure_mode_deny of Envoy decides, and ext_authz refuses every request"`
}

// XDS is the xDS server that has the rules.
type XDS struct {
	Server          string        `envconfig:"CONFIG_GRPC_XDS_SERVER_URL" group:"Rules from an xDS server" default:"localhost:18000" example:"envoy-gateway:18001" desc:"address of the xDS server, host:port"`
	NodeID          string        `envconfig:"CONFIG_GRPC_XDS_NODE_ID" default:"default" example:"envoy-ratelimit" desc:"id of the node, by which the xDS server chooses the rules"`
	NodeMetadata    NodeMetadata  `envconfig:"CONFIG_GRPC_XDS_NODE_METADATA" example:"team=shop,zone=a" desc:"metadata of the node: key=value pairs with commas, or a JSON object"`
	Headers         string        `envconfig:"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS" secret:"true" example:"x-team:shop,x-zone:a" desc:"headers for the xDS server, name:value pairs with commas"`
	UseTLS          bool          `envconfig:"CONFIG_GRPC_XDS_SERVER_USE_TLS" default:"false" example:"true" desc:"connect to the xDS server with TLS"`
	Cert            string        `envconfig:"CONFIG_GRPC_XDS_CLIENT_TLS_CERT" example:"/certs/tls.crt" desc:"file of the certificate that this service shows to the xDS server; each connection reads it again"`
	Key             string        `envconfig:"CONFIG_GRPC_XDS_CLIENT_TLS_KEY" example:"/certs/tls.key" desc:"file of the key of CONFIG_GRPC_XDS_CLIENT_TLS_CERT"`
	CACert          string        `envconfig:"CONFIG_GRPC_XDS_SERVER_TLS_CACERT" example:"/certs/ca.crt" desc:"file of the CA that signed the certificate of the xDS server; default: the CAs of the system"`
	SAN             string        `envconfig:"CONFIG_GRPC_XDS_SERVER_TLS_SAN" example:"envoy-gateway" desc:"name that the certificate of the xDS server must have; default: the host of CONFIG_GRPC_XDS_SERVER_URL"`
	Overlay         string        `envconfig:"CONFIG_GRPC_XDS_OVERLAY" example:"/etc/extauthz/overlay.yaml" desc:"file with the keys that rules of an xDS server lack, such as algorithm, and with policies of ext_authz (docs/xds.md)"`
	ConnectInterval time.Duration `envconfig:"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL" default:"3s" min:"1" want:"want more than 0, such as 3s" example:"1s" desc:"time between attempts to connect to the xDS server; it varies by half at random"`
	Backoff         time.Duration `envconfig:"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL" default:"10s" min:"1" want:"want more than 0, such as 10s" example:"1s" desc:"time until the service connects again after the xDS server has ended the stream; it doubles while streams fail"`
	MaxBackoff      time.Duration `envconfig:"XDS_CLIENT_BACKOFF_MAX_INTERVAL" default:"60s" min:"1" want:"want more than 0, such as 60s" example:"30s" desc:"the longest such time"`
	RandomFactor    float64       `envconfig:"XDS_CLIENT_BACKOFF_RANDOM_FACTOR" default:"0.5" min:"0" want:"want 0 or more, such as 0.5" example:"0.2" desc:"share of that time by which it varies at random; 1 and more: between 0 and twice the time"`
	Jitter          bool          `envconfig:"XDS_CLIENT_BACKOFF_JITTER" default:"true" example:"false" desc:"whether that time varies at random"`
	MaxMessage      int           `envconfig:"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES" min:"0" want:"want 1 or more, or 0 for 4 MiB" example:"8388608" desc:"largest response of the xDS server in bytes; default: 4 MiB"`
}

// Limits are about the decisions of all limits.
type Limits struct {
	Compatibility    string                     `envconfig:"COMPATIBILITY" group:"Limits" words:"default strict" default:"default" example:"strict" desc:"strict: decide and answer as envoyproxy/ratelimit does, also where the default differs (docs/reference/compatibility.md)"`
	Backend          string                     `envconfig:"BACKEND_TYPE" words:"memory redis" example:"redis" desc:"store of the buckets: memory or redis; default: redis if REDIS_URL is set, else memory"`
	DefaultAlgorithm bucket.Algorithm           `envconfig:"DEFAULT_ALGORITHM" default:"sliding_window" example:"token_bucket" desc:"algorithm of limits that name none; fixed_window if COMPATIBILITY=strict; sliding_window is sliding_window_log up to 20 requests per window, sliding_window_counter above"`
	CalendarMonths   bool                       `envconfig:"USE_CALENDAR_MONTH_RATE_LIMIT" default:"false" example:"true" desc:"let each month limit without an algorithm begin with the month in UTC, as fixed_window with calendar: UTC, also limits of requests; a month limit of another algorithm is then a mistake"`
	StoreErrorPolicy ratelimit.StoreErrorPolicy `envconfig:"STORE_ERROR_POLICY" default:"local" example:"deny" desc:"answer if the store cannot decide: local (this process decides, from the last state of each bucket that Redis has shown), allow or deny"`
	Shadow           bool                       `envconfig:"SHADOW_MODE" default:"false" example:"true" desc:"decide and count, but allow requests over a limit"`
	Quota            bool                       `envconfig:"QUOTA_MODE" default:"false" example:"true" desc:"treat every rule as one with quota_mode"`
	StopWhenOver     bool                       `envconfig:"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT" default:"false" example:"true" desc:"with COMPATIBILITY=strict, charge only the limits that a request exceeds, if there are any, in place of all its limits; takes a second round trip to Redis. Otherwise a denied request charges none anyway"`
	LocalCache       int                        `envconfig:"LOCAL_CACHE_SIZE_IN_BYTES" default:"0" min:"0" want:"want 0 or more, such as 1000000" example:"1000000" desc:"with COMPATIBILITY=strict, size of a cache of buckets over their limits, 512 KiB or more; until their windows end, they are denied without Redis and without counting; 0: none. Otherwise DENIAL_CACHE does it, which needs no size"`
	KeyPrefix        string                     `envconfig:"CACHE_KEY_PREFIX" example:"shop:" desc:"prefix of the key of every bucket"`
	MaxHeldPerBucket int                        `envconfig:"MAX_HELD_PER_BUCKET" default:"0" min:"0" want:"want 1 or more, or 0 for a tenth of AUTHZ_MAX_HELD" example:"500" desc:"maximum number of requests that wait in one bucket for its max_delay, so that no client takes all places of AUTHZ_MAX_HELD; further requests are denied and not charged; 0: a tenth of AUTHZ_MAX_HELD"`
}

// Answers are about responses to clients and to Envoy.
type Answers struct {
	Headers         HeaderSets `envconfig:"RESPONSE_HEADERS" group:"Answers" default:"draft" example:"draft,x" desc:"headers for the client: draft (RateLimit), triple (RateLimit-Limit, ...), x (X-RateLimit-Limit, ...), spring, several with commas, or off; off if COMPATIBILITY=strict"`
	AddTriple       bool       `envconfig:"LIMIT_RESPONSE_HEADERS_ENABLED" default:"false" example:"true" desc:"add triple to RESPONSE_HEADERS"`
	LimitHeader     string     `envconfig:"LIMIT_LIMIT_HEADER" form:"header" default:"RateLimit-Limit" example:"X-Limit" desc:"name of the header with the limit, in triple"`
	RemainingHeader string     `envconfig:"LIMIT_REMAINING_HEADER" form:"header" default:"RateLimit-Remaining" example:"X-Remaining" desc:"name of the header with the remaining hits, in triple"`
	ResetHeader     string     `envconfig:"LIMIT_RESET_HEADER" form:"header" default:"RateLimit-Reset" example:"X-Reset" desc:"name of the header with the seconds until the reset, in triple"`
	Names           OtherNames `envconfig:"RESPONSE_HEADER_NAMES" example:"RateLimit:X-Quota,X-RateLimit-Limit:X-Quota-Limit" desc:"other names of headers of draft, x and spring: the usual name, a colon and the other name, several with commas (docs/headers.md)"`
	Status          int        `envconfig:"RESPONSE_STATUS" default:"429" example:"403" desc:"HTTP status of a denial by a limit without a status of its own, 400 to 599; only ext_authz answers with it: for the rate limit filter, Envoy's rate_limited_status decides (docs/headers.md)"`
	// UpstreamHeaders and the three names are about the headers for the upstream.
	UpstreamHeaders bool   `envconfig:"LIMIT_REQUEST_HEADERS_ENABLED" default:"false" example:"true" desc:"send Envoy headers for the upstream: limit, remaining hits and seconds until the reset of the tightest limit, also of a rule in shadow mode (docs/headers.md#headers-for-the-upstream)"`
	UpstreamLimit   string `envconfig:"LIMIT_REQUEST_LIMIT_HEADER" form:"header" default:"RateLimit-Limit" example:"X-Limit" desc:"name of the header for the upstream with the limit"`
	UpstreamLeft    string `envconfig:"LIMIT_REQUEST_REMAINING_HEADER" form:"header" default:"RateLimit-Remaining" example:"X-Remaining" desc:"name of the header for the upstream with the remaining hits"`
	UpstreamReset   string `envconfig:"LIMIT_REQUEST_RESET_HEADER" form:"header" default:"RateLimit-Reset" example:"X-Reset" desc:"name of the header for the upstream with the seconds until the reset"`
	Body            string `envconfig:"RESPONSE_BODY" words:"problem off" default:"problem" example:"off" desc:"body of a denial: problem (RFC 9457 problem+json) or off; off if COMPATIBILITY=strict"`
	DynamicMetadata bool   `envconfig:"RESPONSE_DYNAMIC_METADATA" default:"false" example:"true" desc:"send Envoy the descriptors, the rule that decided and its metadata"`
}

// Authorization is about ext_authz.
type Authorization struct {
	Domain          string        `envconfig:"AUTHZ_DOMAIN" group:"Authorization" example:"shop" desc:"domain of ext_authz requests whose route names none in context_extensions; default: the only domain with an authz section"`
	MaxHeld         int           `envconfig:"AUTHZ_MAX_HELD" default:"1000" min:"1" want:"want 1 or more" example:"5000" desc:"maximum number of responses that are held at once for max_delay, half of them for one rule; further early requests are denied"`
	HTTPTimeout     time.Duration `envconfig:"AUTHZ_HTTP_TIMEOUT" trial:"any" default:"200ms" min:"1" want:"want more than 0, such as 200ms" example:"500ms" desc:"how long Envoy waits for /check: set the value of server_uri.timeout, because Envoy does not send it over HTTP"`
	SourceHeader    string        `envconfig:"AUTHZ_HTTP_SOURCE_HEADER" form:"header" trial:"any" example:"x-peer-address" desc:"header in which Envoy sends /check the address of the peer; default: the address is unknown"`
	PrincipalHeader string        `envconfig:"AUTHZ_HTTP_PRINCIPAL_HEADER" form:"header" example:"x-peer-principal" desc:"header in which Envoy sends /check the principal of the client certificate; default: the principal is unknown"`
}

// Keys are the API keys.
type Keys struct {
	File           string        `envconfig:"API_KEYS_FILE" group:"API keys" example:"/etc/extauthz/keys.jsonl" desc:"file of API keys (extauthz keys create); with Redis, keys can also be there"`
	Secret         string        `envconfig:"API_KEY_SECRET" secret:"true" example:"what-extauthz-keys-secret-prints" desc:"server secret with which API keys are hashed, 16 bytes or more; extauthz keys secret makes one"`
	PreviousSecret string        `envconfig:"API_KEY_SECRET_PREVIOUS" secret:"true" example:"what-it-printed-before" desc:"the previous API_KEY_SECRET while it is being replaced: keys made with it stay valid"`
	MaxAge         time.Duration `envconfig:"API_KEYS_MAX_AGE" default:"24h" min:"0" want:"want 0 or more, such as 24h" example:"1h" desc:"how long API keys from Redis stay valid while Redis is unreachable, or has keys that extauthz keys has not signed; after that, requests with these keys get 503; 0: no limit"`
}

// Memory is what the service keeps in its memory.
type Memory struct {
	MaxBuckets   int    `envconfig:"MEMORY_MAX_BUCKETS" group:"Memory" default:"1000000" min:"1" want:"want 1 or more" example:"5000000" desc:"maximum number of buckets in memory, with Redis of those that are remembered; beyond that, a new bucket replaces a little used one of the rule with the most buckets"`
	MaxHolds     int    `envconfig:"MEMORY_MAX_HOLDS" default:"1000000" min:"1" want:"want 1 or more" example:"200000" desc:"maximum number of live holds in memory, and with Redis of those that a replica remembers; beyond that, reserves that the replica decides itself are denied"`
	SnapshotPath string `envconfig:"MEMORY_SNAPSHOT_PATH" example:"/var/lib/extauthz/buckets" desc:"file that keeps the buckets over a restart; the service writes it every minute and on shutdown"`
}

// Redis is what the one or two servers of Redis share.
type Redis struct {
	// Main has the API keys and, unless UsePerSecond is set, all buckets.
	Main             RedisServer `prefix:"REDIS_"`
	CACert           string      `envconfig:"REDIS_TLS_CACERT" example:"/etc/extauthz/redis-ca.pem" desc:"file of the CA that signed the certificate of Redis; default: the CAs of the system"`
	Cert             string      `envconfig:"REDIS_TLS_CLIENT_CERT" example:"/etc/extauthz/redis-cert.pem" desc:"file of the certificate that this service shows to Redis"`
	Key              string      `envconfig:"REDIS_TLS_CLIENT_KEY" example:"/etc/extauthz/redis-key.pem" desc:"file of the key of REDIS_TLS_CLIENT_CERT"`
	SkipHostname     bool        `envconfig:"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION" default:"false" example:"true" desc:"do not check that the certificate of Redis is for its host"`
	FallbackReplicas int         `envconfig:"LOCAL_FALLBACK_REPLICAS" min:"1" want:"want 1 to 1000, the number of replicas that share Redis" example:"3" desc:"number of replicas that share Redis: with on_store_error: local, each hit that a replica admits without Redis counts that often, so that all replicas together admit what is left of a limit; default: the replicas count themselves in Redis (docs/operations.md#how-replicas-count-themselves)"`
	DenialCache      bool        `envconfig:"DENIAL_CACHE" default:"true" example:"false" desc:"deny a request without asking Redis if Redis has shown within the last second that its limit is used up, and would certainly deny it"`
	HealthCheck      bool        `envconfig:"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION" default:"false" example:"true" desc:"report NOT_SERVING while no Redis answers, instead of deciding without it"`
	UsePerSecond     bool        `envconfig:"REDIS_PERSECOND" default:"false" example:"true" desc:"keep the buckets of windows shorter than a minute (unit: second) in a second Redis, REDIS_PERSECOND_URL; it has the certificates of REDIS_TLS_CACERT and REDIS_TLS_CLIENT_CERT, too"`
	// PerSecond has the buckets of windows shorter than a minute.
	PerSecond RedisServer `prefix:"REDIS_PERSECOND_"`
}

// Telemetry is what the service reports of itself.
type Telemetry struct {
	LogLevel          LogLevel      `envconfig:"LOG_LEVEL" group:"Logs" trial:"any" default:"WARN" example:"INFO" desc:"minimum level of log lines: DEBUG (each decision), INFO (denials, also in shadow), WARN or ERROR"`
	LogFormat         string        `envconfig:"LOG_FORMAT" words:"text json" trial:"any" default:"text" example:"json" desc:"format of log lines: text or json"`
	LogClientValues   bool          `envconfig:"LOG_CLIENT_VALUES" default:"false" example:"true" desc:"also log values of the client with each decision: address, method, host, path without query, x-request-id, and the owner and plan of its credential; also the values of descriptors, which can be credentials; at any LOG_LEVEL, /top, /shadow and the page of the debug port then show the keys of limits with these values"`
	DisableStats      bool          `envconfig:"DISABLE_STATS" group:"Metrics" default:"false" example:"true" desc:"send no statistics to statsd, and do not listen on PROMETHEUS_ADDR; /metrics of the debug port stays"`
	UsePrometheus     bool          `envconfig:"USE_PROMETHEUS" default:"false" example:"true" desc:"serve metrics on PROMETHEUS_ADDR, too; they are always at /metrics of the debug port"`
	PrometheusAddr    HostPort      `envconfig:"PROMETHEUS_ADDR" default:":9090" example:":19001" desc:"address and port of the listener for Prometheus, with USE_PROMETHEUS"`
	PrometheusPath    string        `envconfig:"PROMETHEUS_PATH" form:"path" default:"/metrics" example:"/stats/prometheus" desc:"path of the metrics on PROMETHEUS_ADDR"`
	MetricMapping     string        `envconfig:"PROMETHEUS_MAPPER_YAML" example:"/etc/statsd-exporter/conf.yaml" desc:"file in the format of statsd_exporter that names the metrics of envoyproxy/ratelimit; default: its usual names; they also apply if the file does not exist"`
	Milliseconds      bool          `envconfig:"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS" default:"false" example:"true" desc:"ratelimit_service_response_time_seconds is in milliseconds, as in older versions of envoyproxy/ratelimit; without effect if PROMETHEUS_MAPPER_YAML is set"`
	NearLimitRatio    float32       `envconfig:"NEAR_LIMIT_RATIO" form:"limit share" default:"0.8" example:"0.9" desc:"share of a limit above which its hits count as near_limit and extauthz buckets top shows a key as near; the keys take 1.1 MB of memory, whatever clients send"`
	MetricValues      int           `envconfig:"METRIC_VALUES_MAX" default:"1000" min:"1" want:"want 1 or more" example:"100" desc:"maximum number of values of clients that are labels of metrics, for each rule with detailed_metric or value_to_metric; further values are counted as other"`
	UseStatsd         bool          `envconfig:"USE_STATSD" default:"true" example:"false" desc:"send the statistics of envoyproxy/ratelimit to a statsd server; false unless set if USE_PROMETHEUS or USE_DOG_STATSD is set, and for the built-in sample"`
	UseDogStatsd      bool          `envconfig:"USE_DOG_STATSD" default:"false" example:"true" desc:"send them to a DogStatsD server, by UDP"`
	StatsdHost        string        `envconfig:"STATSD_HOST" default:"localhost" example:"statsd" desc:"host of the statsd or DogStatsD server"`
	StatsdPort        uint16        `envconfig:"STATSD_PORT" default:"8125" example:"9125" desc:"its port"`
	StatsdProtocol    string        `envconfig:"STATSD_PROTOCOL" words:"tcp udp" default:"tcp" example:"udp" desc:"tcp or udp, for USE_STATSD"`
	FlushInterval     time.Duration `envconfig:"STATS_FLUSH_INTERVAL" default:"10s" example:"1m" desc:"how often the growth of the counters is sent"`
	ExtraTags         Tags          `envconfig:"EXTRA_TAGS" example:"cluster:east,stage:test" desc:"tags of each statistic that is sent"`
	MogrifierNames    []string      `envconfig:"USE_DOG_STATSD_MOGRIFIERS" form:"names" example:"HITS" desc:"names of rules that make names and tags of statistics for DogStatsD, with commas; DOG_STATSD_MOGRIFIER_<name>_PATTERN is a regular expression, _NAME the new name, and _TAGS key:value pairs with commas; $1 stands for the first group of the pattern"`
	Tracing           bool          `envconfig:"TRACING_ENABLED" group:"Traces" default:"false" example:"true" desc:"send a span of each request to a collector of OpenTelemetry; its SDK reads the standard variables, such as OTEL_EXPORTER_OTLP_ENDPOINT"`
	TracingName       string        `envconfig:"TRACING_SERVICE_NAME" default:"RateLimit" example:"extauthz" desc:"service.name of the spans; OTEL_SERVICE_NAME also sets it"`
	TracingNamespace  string        `envconfig:"TRACING_SERVICE_NAMESPACE" example:"shop" desc:"service.namespace of the spans"`
	TracingInstanceID string        `envconfig:"TRACING_SERVICE_INSTANCE_ID" example:"replica-1" desc:"service.instance.id of the spans; default: a random text"`
	TracingProtocol   string        `envconfig:"TRACING_EXPORTER_PROTOCOL" words:"http grpc" default:"http" example:"grpc" desc:"protocol of the collector (OTLP): http or grpc"`
	TracingRate       float64       `envconfig:"TRACING_SAMPLING_RATE" form:"share" default:"1" example:"0.1" desc:"share of requests that have a span, 0 to 1; a request whose caller samples it always has one, and one whose caller does not, never"`

	// Mogrifiers are those of MogrifierNames.
	Mogrifiers []telemetry.Mogrifier
	// StatsdChosen is true if the operator has set a variable of statsd. By default there may be no server.
	StatsdChosen bool
}

// Process is about the start and the end of the process.
type Process struct {
	// StrictEnvironment is off by default: deployments of envoyproxy/ratelimit set variables that no program reads.
	StrictEnvironment bool          `envconfig:"STRICT_ENVIRONMENT" group:"Start and end" default:"false" example:"true" desc:"refuse to start if a variable is neither a setting nor one of the platform, such as PATH, which is usually a misspelled setting, or if settings contradict each other"`
	HealthyConfigs    bool          `envconfig:"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED" default:"false" example:"true" desc:"report NOT_SERVING until there are rules; an empty rule directory has none"`
	DrainDelay        time.Duration `envconfig:"DRAIN_DELAY" trial:"any" default:"5s" example:"10s" desc:"time after SIGTERM in which the service still answers but reports NOT_SERVING, so that every Envoy notices"`
	DrainTimeout      time.Duration `envconfig:"DRAIN_TIMEOUT" trial:"any" default:"25s" example:"1m" desc:"maximum wait for requests in flight after DRAIN_DELAY"`

	// Configured are the variables by which an operator has configured the service, so that no sample is served.
	Configured []string
}

// RedisServer is one Redis. Its variables begin with REDIS_ or REDIS_PERSECOND_.
type RedisServer struct {
	URL          string        `envconfig:"URL" group:"Redis" secret:"url" example:"redis://redis:6379/0" desc:"address of Redis: redis://[user:password@]host:port[/db], rediss://..., unix:///path, host:port or /path; REDIS_TYPE=SENTINEL: master,host:port,host:port (the name of the master, and sentinels); REDIS_TYPE=CLUSTER: host:port,host:port"`
	SocketType   string        `envconfig:"SOCKET_TYPE" words:"tcp tls unix" example:"tcp" desc:"tcp, tls or unix, for a REDIS_URL without a scheme"`
	Type         string        `envconfig:"TYPE" words:"SINGLE SENTINEL CLUSTER" default:"SINGLE" example:"CLUSTER" desc:"kind of Redis: SINGLE, SENTINEL or CLUSTER; it sets the form of REDIS_URL"`
	Auth         string        `envconfig:"AUTH" secret:"true" example:"limiter:password" desc:"password of Redis, or user:password"`
	SentinelAuth string        `envconfig:"SENTINEL_AUTH" secret:"true" example:"limiter:password" desc:"password of the sentinels, or user:password"`
	TLS          bool          `envconfig:"TLS" default:"false" example:"true" desc:"connect to Redis with TLS"`
	PoolSize     int           `envconfig:"POOL_SIZE" default:"10" min:"1" want:"want 1 or more" example:"3" desc:"maximum number of connections for decisions to each Redis; at most 3 are used, because requests share them"`
	Timeout      time.Duration `envconfig:"TIMEOUT" min:"1" want:"want more than 0, such as 15ms" example:"15ms" desc:"maximum time that a decision waits for Redis; it also ends 5 ms before the deadline of the caller; after that, on_store_error or STORE_ERROR_POLICY decides; default: 50ms; with COMPATIBILITY=strict a decision waits until the deadline of the caller, and without one 10s; with REDIS_PERSECOND, a decision waits for the longer of the two timeouts"`
}

// Strict reports whether to decide and answer as envoyproxy/ratelimit does.
func (s *Settings) Strict() bool { return s.Limits.Compatibility == "strict" }

// UsesRedis reports whether the buckets are in Redis.
func (s *Settings) UsesRedis() bool { return s.Store() == "redis" }

// Store returns the store of the buckets, memory or redis.
func (s *Settings) Store() string {
	switch {
	case s.Limits.Backend != "":
		return s.Limits.Backend
	case s.Redis.Main.URL != "":
		return "redis"
	}
	return "memory"
}

// ConfigXDS is the CONFIG_TYPE of rules from an xDS server.
const ConfigXDS = "GRPC_XDS_SOTW"

// Directory returns the directory of the rule files.
func (r *Rules) Directory() string { return filepath.Join(r.Root, r.Subdirectory, r.Appdirectory) }

// ReplyHeaders returns the header sets to send.
func (a *Answers) ReplyHeaders() reply.Headers {
	sets := []reply.Set(a.Headers)
	if a.AddTriple && !slices.Contains(sets, reply.Triple) {
		sets = append(sets, reply.Triple)
	}
	return reply.Headers{
		Sets: sets, LimitName: a.LimitHeader, RemainingName: a.RemainingHeader,
		ResetName: a.ResetHeader, Renamed: a.Names,
	}
}

// RequestHeaders returns the headers to send to the upstream.
func (a *Answers) RequestHeaders() reply.Headers {
	if !a.UpstreamHeaders {
		return reply.Headers{}
	}
	return reply.Headers{
		Sets: []reply.Set{reply.Triple}, LimitName: a.UpstreamLimit, RemainingName: a.UpstreamLeft,
		ResetName: a.UpstreamReset,
	}
}

// Configured reports whether the operator has set a key file or a server secret.
func (k *Keys) Configured() bool { return k.File != "" || k.Secret != "" || k.PreviousSecret != "" }

// UsesTLS reports whether connections to the Redis use TLS.
func (r *RedisServer) UsesTLS() bool {
	return r.TLS || r.SocketType == "tls" || strings.HasPrefix(r.URL, "rediss://")
}
