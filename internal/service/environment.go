package service

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

// ReadSettings reads the environment. Its error lists every mistake; warnings say which variables are set and have no effect. Neither
// holds a value, because a secret may be in the wrong variable, except paths, which HideSecrets replaces if they look like secrets.
//
// envconfig stops at its first error and cannot tell a variable that is set from a default, so it is called a field at a time.
func ReadSettings() (s *Settings, warnings []string, err error) {
	s = new(Settings)
	var mistakes []error
	wrong := map[string]bool{} // by the name of the variable
	value := reflect.ValueOf(s).Elem()
	for i := range value.NumField() {
		field := value.Type().Field(i)
		if err := readField(field, value.Field(i)); err != nil {
			mistakes = append(mistakes, err)
			wrong[field.Tag.Get("envconfig")] = true
		}
	}
	s.resolveStrict()
	for _, mistake := range s.checkTogether() {
		if name, _, _ := strings.Cut(mistake.Error(), ":"); !wrong[name] { // one that could not be read is 0 now
			mistakes = append(mistakes, mistake)
		}
	}
	environ := os.Environ()
	if s.StrictEnvironment {
		mistakes = append(mistakes, strangers(environ)...)
	}
	if len(mistakes) > 0 {
		return nil, nil, errors.Join(mistakes...)
	}
	return s, ineffective(environ), nil
}

// readField reads one setting, a secret also from the file that NAME_FILE names.
func readField(field reflect.StructField, into reflect.Value) error {
	name := field.Tag.Get("envconfig")
	if file := os.Getenv(name + "_FILE"); field.Tag.Get("secret") != "" && file != "" {
		if os.Getenv(name) != "" {
			return fmt.Errorf("%s and %s_FILE are both set: take one of them", name, name)
		}
		content, err := os.ReadFile(file)
		if err != nil && (!strings.Contains(file, "/") || mayBeSecret(file)) {
			return fmt.Errorf("%s_FILE: want the path of a file with the secret, such as /run/secrets/name; no file has this name, "+
				"which is not shown, since it may be the secret itself", name)
		}
		if err != nil {
			return fmt.Errorf("%s_FILE: %w", name, err)
		}
		into.SetString(strings.TrimRight(string(content), "\r\n"))
		return nil
	}
	if kind := secretKind(os.Getenv(name)); kind != "" && field.Tag.Get("secret") == "" {
		return fmt.Errorf("%s: this is %s, so it is not shown: want %s", name, kind, field.Tag.Get("desc"))
	}
	if v, set := os.LookupEnv(name); set && v == "" && field.Tag.Get("default") != "" {
		return fmt.Errorf("%s is set to nothing: %s (default %s)", name, wanted(field.Type), field.Tag.Get("default"))
	}
	one := reflect.New(reflect.StructOf([]reflect.StructField{field}))
	if err := envconfig.Process("", one.Interface()); err != nil {
		return mistake(name, field, err)
	}
	into.Set(one.Elem().Field(0))
	return nil
}

// mistake returns an error with what is wrong with a setting and what was wanted, without the value.
func mistake(name string, field reflect.StructField, err error) error {
	var parse *envconfig.ParseError
	if !errors.As(err, &parse) {
		return fmt.Errorf("%s: %w", name, err)
	}
	want := wanted(field.Type)
	if strings.HasPrefix(parse.Err.Error(), "want ") || want == "" { // a Decode of ours
		want = parse.Err.Error()
	}
	return fmt.Errorf("%s: %s", name, want)
}

func wanted(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return `want a duration with its unit, such as 50ms, 5s or 24h`
	case reflect.TypeFor[uint16]():
		return "want a port, 0 to 65535"
	case reflect.TypeFor[bool]():
		return "want true or false"
	case reflect.TypeFor[int]():
		return "want a whole number"
	}
	return ""
}

// resolveStrict lets COMPATIBILITY=strict set the defaults of what it is about; what is set by name stays.
func (s *Settings) resolveStrict() {
	if !s.strict() {
		return
	}
	if os.Getenv("DEFAULT_ALGORITHM") == "" {
		s.DefaultAlgorithm = Algorithm(fixedWindow)
	}
	if os.Getenv("RESPONSE_HEADERS") == "" {
		s.ResponseHeaders = nil
	}
	if os.Getenv("RESPONSE_BODY") == "" {
		s.ResponseBody = "off"
	}
}

// checkTogether finds settings that are right each by itself and do not fit together.
func (s *Settings) checkTogether() (mistakes []error) {
	if s.BackendType == "" {
		s.BackendType = "memory"
		if s.RedisURL != "" {
			s.BackendType = "redis"
		}
	}
	if s.BackendType == "redis" && s.RedisURL == "" {
		mistakes = append(mistakes, errors.New("BACKEND_TYPE=redis needs REDIS_URL, such as redis://127.0.0.1:6379"))
	}
	if (s.RedisCert == "") != (s.RedisKey == "") {
		mistakes = append(mistakes, errors.New("REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY go together: set both or none"))
	}
	if s.MaxBuckets < 1 {
		mistakes = append(mistakes, errors.New("MEMORY_MAX_BUCKETS: want 1 or more"))
	}
	if s.MaxConnections < 0 || s.HTTPMaxConnections < 0 {
		mistakes = append(mistakes, errors.New("GRPC_MAX_CONNECTIONS and HTTP_MAX_CONNECTIONS: want 1 or more, or 0 for as many as the memory limit allows"))
	}
	if s.MaxHeld < 1 {
		mistakes = append(mistakes, errors.New("AUTHZ_MAX_HELD: want 1 or more"))
	}
	if s.MaxHeldPerBucket < 0 {
		mistakes = append(mistakes, errors.New("MAX_HELD_PER_BUCKET: want 1 or more, or 0 for a tenth of AUTHZ_MAX_HELD"))
	}
	if s.KeysMaxAge < 0 {
		mistakes = append(mistakes, errors.New("API_KEYS_MAX_AGE: want 0 or more, such as 24h"))
	}
	if s.HTTPTimeout <= 0 {
		mistakes = append(mistakes, errors.New("AUTHZ_HTTP_TIMEOUT: want more than 0, such as 200ms"))
	}
	if s.RedisPoolSize < 1 {
		mistakes = append(mistakes, errors.New("REDIS_POOL_SIZE: want 1 or more"))
	}
	if s.RedisTimeout <= 0 {
		mistakes = append(mistakes, errors.New("REDIS_TIMEOUT: want more than 0, such as 8ms"))
	}
	if s.DrainDelay < 0 || s.DrainTimeout < 0 {
		mistakes = append(mistakes, errors.New("DRAIN_DELAY and DRAIN_TIMEOUT: want 0s or more"))
	}
	for name, what := range mustNotBeIgnored {
		if v := os.Getenv(name); v != "" && !strings.EqualFold(v, "false") {
			mistakes = append(mistakes, fmt.Errorf("%s: %s", name, what))
		}
	}
	return mistakes
}
