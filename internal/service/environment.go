package service

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// Environment holds environment variables by name. Only main reads those of the process.
type Environment map[string]string

// ParseEnvironment returns the variables of a list such as os.Environ returns.
func ParseEnvironment(environ []string) Environment {
	e := make(Environment, len(environ))
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		e[name] = value
	}
	return e
}

// ReadSettings reads the settings from an environment. Its error lists every mistake. The error shows no values,
// because a secret may be in the wrong variable. It shows paths, which HideSecrets replaces if they look like secrets.
func ReadSettings(e Environment) (*Settings, error) {
	s := &Settings{environment: e}
	var mistakes []error
	wrong := map[string]bool{} // by the name of the variable
	value := reflect.ValueOf(s).Elem()
	for _, setting := range List() {
		if err := e.read(setting, value.FieldByIndex(setting.field.Index)); err != nil {
			mistakes = append(mistakes, err)
			wrong[setting.Name] = true
		}
	}
	s.resolveDefaults()
	for _, mistake := range s.checkTogether() {
		if name, _, _ := strings.Cut(mistake, ":"); !wrong[name] { // a setting with an error has its zero value
			mistakes = append(mistakes, errors.New(mistake))
		}
	}
	if s.StrictEnvironment {
		mistakes = append(mistakes, e.unknownVariables()...)
	}
	if len(mistakes) > 0 {
		return nil, errors.Join(mistakes...)
	}
	return s, nil
}

// read reads one setting from its variable, or from the file that NAME_FILE names if it is a secret. Else it takes the
// default.
func (e Environment) read(s Setting, into reflect.Value) error {
	name, byDefault := s.Name, s.Default
	text, set := e[name]
	if file := e[name+"_FILE"]; s.File && file != "" {
		if text != "" {
			return fmt.Errorf("%s and %s_FILE are both set: take one of them", name, name)
		}
		content, err := e.readSecret(file)
		into.SetString(content)
		if err != nil {
			return fmt.Errorf("%s_FILE: %w", name, err)
		}
		return nil
	}
	if kind := secretKind(text); kind != "" && !s.File {
		return fmt.Errorf("%s: this is %s, so it is not shown: want %s", name, kind, s.Meaning)
	}
	if !set && byDefault == "" {
		return nil
	}
	if !set {
		text = byDefault
	}
	err := s.parse(text, into)
	if text == "" && byDefault != "" {
		err = cmp.Or(err, errors.New("give it a value, or unset it"))
		return fmt.Errorf("%s is set to nothing: %w (default %s)", name, err, byDefault)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// readSecret returns the content of a file without the newline at its end.
func (e Environment) readSecret(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil && (!strings.Contains(file, "/") || e.mayBeSecret(file)) {
		return "", errors.New("want the path of a file with the secret, such as /run/secrets/name; no file has this name " +
			"(not shown, because it may be the secret itself)")
	}
	return strings.TrimRight(string(content), "\r\n"), err
}

// notSupported are values of envoyproxy/ratelimit that the service refuses, and the reason.
var notSupported = map[string]string{
	"BACKEND_TYPE=MEMCACHE": noMemcached,
}

// parse reads a setting from text. The words of the tag words are read in any case. The error names the wanted form. It
// never shows the text, because that may be a secret in the wrong variable.
func (s Setting) parse(text string, into reflect.Value) error {
	if list := strings.Fields(s.field.Tag.Get("words")); len(list) > 0 {
		i := slices.IndexFunc(list, func(word string) bool { return strings.EqualFold(word, text) })
		if i >= 0 {
			into.SetString(list[i])
			return nil
		}
		want := "want " + strings.Join(list, " or ")
		if why := notSupported[s.Name+"="+strings.ToUpper(text)]; why != "" {
			return fmt.Errorf("%s: %s", why, want)
		}
		return errors.New(want + DidYouMean(text, list...))
	}
	var err error
	switch into := into.Addr().Interface().(type) {
	case *string:
		*into = text
	case *bool:
		if *into, err = strconv.ParseBool(text); err != nil {
			return errors.New("want true or false")
		}
	case *int:
		n, err := strconv.ParseInt(text, 0, strconv.IntSize)
		if *into = int(n); err != nil {
			return errors.New("want a whole number")
		}
	case *float64:
		if *into, err = strconv.ParseFloat(text, 64); err != nil || math.IsNaN(*into) {
			return errors.New("want a number, such as 0.5")
		}
	case *uint16:
		n, err := strconv.ParseUint(text, 0, 16)
		if *into = uint16(n); err != nil {
			return errors.New("want a port, 0 to 65535")
		}
	case *time.Duration:
		if *into, err = time.ParseDuration(text); err != nil {
			return errors.New("want a duration with its unit, such as 50ms, 5s or 24h")
		}
	case Word:
		return SetWord(into, text)
	case encoding.TextUnmarshaler:
		return into.UnmarshalText([]byte(text))
	default:
		panic(fmt.Sprintf("a setting of type %T", into))
	}
	return nil
}

// Word is a value that is one of a list of words.
type Word interface {
	encoding.TextUnmarshaler
	Words() []string
}

// SetWord sets a value to one of its words. Case does not matter. The error does not show the text.
func SetWord(into Word, text string) error {
	if into.UnmarshalText([]byte(strings.ToLower(text))) != nil {
		return fmt.Errorf("want one of %s%s", strings.Join(into.Words(), ", "), DidYouMean(text, into.Words()...))
	}
	return nil
}

// DidYouMean returns the end of an error about a misspelt word: the closest of words, or "" if none is close. It does
// not show v.
func DidYouMean(v string, words ...string) string {
	if word := suggest.Closest(v, words); word != "" {
		return fmt.Sprintf(" (did you mean %s?)", word)
	}
	return ""
}

// resolveDefaults sets the defaults that depend on other settings.
func (s *Settings) resolveDefaults() {
	if s.BackendType == "" {
		s.BackendType = "memory"
		if s.RedisURL != "" {
			s.BackendType = "redis"
		}
	}
	if name := s.environment["OTEL_SERVICE_NAME"]; name != "" && s.environment["TRACING_SERVICE_NAME"] == "" {
		s.TracingName = name
	}
	if s.environment["USE_STATSD"] == "" && (s.UsePrometheus || s.UseDogStatsd) {
		s.UseStatsd = false
	}
	if s.DisableStats {
		s.UsePrometheus, s.UseStatsd, s.UseDogStatsd = false, false, false
	}
	if !s.strict() {
		return
	}
	if s.environment["DEFAULT_ALGORITHM"] == "" {
		s.DefaultAlgorithm = bucket.FixedWindow
	}
	if s.environment["RESPONSE_HEADERS"] == "" {
		s.ResponseHeaders = nil
	}
	if s.environment["RESPONSE_BODY"] == "" {
		s.ResponseBody = "off"
	}
}

// maxConnAge is 100 years. A transport adds up to a tenth to an age, which must not overflow.
const maxConnAge = 876_000 * time.Hour

// checkTogether returns the mistakes of settings that are out of range or contradict each other.
func (s *Settings) checkTogether() (mistakes []string) {
	for _, rule := range []struct {
		broken  bool
		mistake string
	}{
		{s.BackendType == "redis" && s.RedisURL == "", "BACKEND_TYPE=redis needs REDIS_URL, such as redis://127.0.0.1:6379"},
		{s.PerSecond && s.PerSecondURL == "",
			"REDIS_PERSECOND=true needs REDIS_PERSECOND_URL, such as redis://127.0.0.1:6380"},
		{s.PerSecond && s.BackendType != "redis",
			"REDIS_PERSECOND=true needs REDIS_URL, too: the Redis of windows of a minute and longer"},
		{(s.RedisCert == "") != (s.RedisKey == ""),
			"REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY: set both or none"},
		{s.GRPCUseTLS && (s.GRPCCert == "" || s.GRPCKey == ""),
			"GRPC_SERVER_USE_TLS=true needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY"},
		{s.GRPCClientSAN != "" && s.GRPCClientCA == "",
			"GRPC_CLIENT_TLS_SAN: set GRPC_CLIENT_TLS_CACERT, too; without it, clients need no certificate"},
		{s.MaxStreams < 1 || s.MaxStreams > math.MaxInt32, "GRPC_MAX_CONCURRENT_STREAMS: want 1 to 2147483647, such as 1024"},
		{s.MaxConnAge != 0 && (s.MaxConnAge < time.Millisecond || s.MaxConnAge > maxConnAge),
			"GRPC_MAX_CONNECTION_AGE: want 1ms to 876000h, or 0 for no maximum"},
		{s.MaxConnGrace < 0, "GRPC_MAX_CONNECTION_AGE_GRACE: want more than 0, such as 1h, or 0 for no maximum"},
		{s.MaxBuckets < 1, "MEMORY_MAX_BUCKETS: want 1 or more"},
		{s.FallbackReplicas < 1 || s.FallbackReplicas > nearstore.MaxReplicas,
			fmt.Sprintf("LOCAL_FALLBACK_REPLICAS: want 1 to %d, the number of replicas that share Redis",
				nearstore.MaxReplicas)},
		{s.MetricValues < 1, "METRIC_VALUES_MAX: want 1 or more"},
		{s.UseStatsd && s.UseDogStatsd, "USE_STATSD and USE_DOG_STATSD: set one of them"},
		{s.FlushInterval < time.Millisecond, "STATS_FLUSH_INTERVAL: want 1ms or more, such as 10s"},
		{s.MaxConnections < 0 || s.HTTPMaxConnections < 0,
			"GRPC_MAX_CONNECTIONS and HTTP_MAX_CONNECTIONS: want 1 or more, or 0 for as many as the memory limit allows"},
		{s.MaxHeld < 1, "AUTHZ_MAX_HELD: want 1 or more"},
		{s.MaxHeldPerBucket < 0, "MAX_HELD_PER_BUCKET: want 1 or more, or 0 for a tenth of AUTHZ_MAX_HELD"},
		{s.KeysMaxAge < 0, "API_KEYS_MAX_AGE: want 0 or more, such as 24h"},
		{s.HTTPTimeout <= 0, "AUTHZ_HTTP_TIMEOUT: want more than 0, such as 200ms"},
		{s.RedisPoolSize < 1, "REDIS_POOL_SIZE: want 1 or more"},
		{s.PerSecondPoolSize < 1, "REDIS_PERSECOND_POOL_SIZE: want 1 or more"},
		{s.environment["REDIS_PERSECOND_TIMEOUT"] != "" && s.PerSecondTimeout <= 0,
			"REDIS_PERSECOND_TIMEOUT: want more than 0, such as 15ms"},
		{s.environment["REDIS_TIMEOUT"] != "" && s.RedisTimeout <= 0, "REDIS_TIMEOUT: want more than 0, such as 15ms"},
		{s.ConfigType == configXDS && !isTarget(s.XDSServer),
			"CONFIG_GRPC_XDS_SERVER_URL: want host:port, such as envoy-gateway:18001"},
		{s.XDSNodeID == "", "CONFIG_GRPC_XDS_NODE_ID: want the id that the xDS server knows"},
		{(s.XDSCert == "") != (s.XDSKey == ""),
			"CONFIG_GRPC_XDS_CLIENT_TLS_CERT and CONFIG_GRPC_XDS_CLIENT_TLS_KEY: set both or none"},
		{s.XDSConnect <= 0, "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL: want more than 0, such as 3s"},
		{s.XDSBackoff <= 0, "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL: want more than 0, such as 10s"},
		{s.XDSMaxBackoff <= 0, "XDS_CLIENT_BACKOFF_MAX_INTERVAL: want more than 0, such as 60s"},
		{s.XDSRandomFactor < 0, "XDS_CLIENT_BACKOFF_RANDOM_FACTOR: want 0 or more, such as 0.5"},
		{s.XDSMaxMessage < 0, "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES: want 1 or more, or 0 for 4 MiB"},
		{s.DrainDelay < 0 || s.DrainTimeout < 0, "DRAIN_DELAY and DRAIN_TIMEOUT: want 0s or more"},
	} {
		if rule.broken {
			mistakes = append(mistakes, rule.mistake)
		}
	}
	if _, err := parseHeaders(s.XDSHeaders); err != nil {
		mistakes = append(mistakes, "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: "+err.Error())
	}
	mistakes = append(mistakes, s.readMogrifiers()...)
	return mistakes
}
