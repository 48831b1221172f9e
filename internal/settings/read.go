package settings

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
	"golang.org/x/net/http/httpguts"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Read reads the settings from the environment. Its error is [Findings]. It shows no values, because a secret may be
// in the wrong variable. It shows paths, which HideSecrets replaces if they look like secrets.
func Read() (*Settings, error) {
	s, env := &Settings{}, currentEnvironment()
	var mistakes Findings
	wrong := map[string]bool{} // by the name of the variable
	value := reflect.ValueOf(s).Elem()
	for _, setting := range List() {
		if mistake := setting.read(env, value.FieldByIndex(setting.index)); mistake != nil {
			mistakes = append(mistakes, *mistake)
			wrong[setting.Name] = true
		}
	}
	s.resolveDefaults(env)
	together, contradictions := s.checkTogether(env), s.contradictions()
	if s.Process.StrictEnvironment {
		together = slices.Concat(together, contradictions, env.unknownVariables())
	}
	for _, mistake := range together {
		if !wrong[mistake.Setting] { // a setting with an error has its zero value
			mistakes = append(mistakes, mistake)
		}
	}
	if len(mistakes) > 0 {
		return nil, mistakes
	}
	s.Process.Configured = env.configured()
	s.Warnings = slices.Concat(contradictions, env.ineffective(), s.ineffective(), s.ineffectiveXDS(env))
	return s, nil
}

// read reads one setting from its variable, or a secret from the file that NAME_FILE names. It returns the mistake.
func (s *Setting) read(e environment, into reflect.Value) *Finding {
	text, set := e[s.Name]
	if file := e[s.Name+"_FILE"]; s.File && file != "" {
		if text != "" {
			return &Finding{s.Name, fmt.Sprintf("%s and %s_FILE are both set: take one of them", s.Name, s.Name)}
		}
		content, err := e.readSecret(file)
		into.SetString(content)
		if err != nil {
			return &Finding{s.Name + "_FILE", err.Error()}
		}
		return nil
	}
	if kind := secretKind(text); kind != "" && !s.File {
		return &Finding{s.Name, fmt.Sprintf("this is %s, so it is not shown: want %s", kind, s.Meaning)}
	}
	err := s.process(text, into)
	if form, ok := forms[s.tag.Get("form")]; ok && set && !form.fits(text) {
		err = errors.New(form.want)
	}
	if err == nil && (text != "" || s.Default != "") && s.belowMin(into) {
		err = errors.New(s.tag.Get("want"))
	}
	if words := strings.Fields(s.tag.Get("words")); err == nil && len(words) > 0 && (set || s.Default != "") {
		err = s.setWord(into, words)
	}
	if set && text == "" && s.Default != "" {
		err = cmp.Or(err, errors.New("give it a value, or unset it"))
		return &Finding{s.Name, fmt.Sprintf("%s is set to nothing: %v (default %s)", s.Name, err, s.Default)}
	}
	if err != nil {
		return &Finding{s.Name, err.Error()}
	}
	return nil
}

// process has envconfig read a variable with this text, or take the default. envconfig stops at its first mistake, so
// it gets a struct with one field. Its error shows the value, so only what is wanted is taken from it.
func (s *Setting) process(text string, into reflect.Value) error {
	tag := reflect.StructTag(fmt.Sprintf("envconfig:%q default:%q", s.Name, s.Default))
	one := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "Value", Type: into.Type(), Tag: tag}}))
	err := envconfig.Process("", one.Interface())
	into.Set(one.Elem().Field(0))
	if word, ok := into.Addr().Interface().(Word); ok && err != nil {
		return SetWord(word, text) // in any case
	}
	if number, ok := into.Interface().(float64); ok && (math.IsNaN(number) || math.IsInf(number, 0)) {
		err = errors.New(wantNumber)
	}
	if failed, ok := errors.AsType[*envconfig.ParseError](err); ok {
		if want, ok := failed.Err.(wanted); ok { //nolint:errorlint // any other error may have the value
			return want
		}
	}
	if err != nil {
		return errors.New(wantedForms[into.Type()])
	}
	return nil
}

const wantNumber = "want a number, such as 0.5"

// wantedForms are the forms of the types that envconfig reads itself.
var wantedForms = map[reflect.Type]string{
	reflect.TypeFor[bool]():          "want true or false",
	reflect.TypeFor[int]():           "want a whole number",
	reflect.TypeFor[float64]():       wantNumber,
	reflect.TypeFor[uint16]():        "want a port, 0 to 65535",
	reflect.TypeFor[time.Duration](): "want a duration with its unit, such as 50ms, 5s or 24h",
}

type form struct {
	want string
	fits func(text string) bool
}

// forms are the forms that the tag form names.
var forms = map[string]form{
	"header": {"want the name of a header, such as X-Forwarded-For: letters, digits and hyphens",
		httpguts.ValidHeaderFieldName},
	"path": {"want a path that begins with /, such as /metrics", func(text string) bool {
		return strings.HasPrefix(text, "/")
	}},
	"share": {"want a number from 0 to 1, such as 0.1", func(text string) bool {
		n, err := strconv.ParseFloat(text, 64)
		return err == nil && n >= 0 && n <= 1
	}},
	"names": {"want names of letters, digits and underscores, with commas between them, such as HITS,DOMAIN",
		regexp.MustCompile(`^([a-zA-Z0-9_]+(,[a-zA-Z0-9_]+)*)?$`).MatchString},
	"limit share": {"want a number above 0 and up to 1, such as 0.8", func(text string) bool {
		n, err := strconv.ParseFloat(text, 32)
		return err == nil && n > 0 && n <= 1
	}},
}

func (s *Setting) belowMin(number reflect.Value) bool {
	least, err := strconv.ParseInt(s.tag.Get("min"), 10, 64)
	return err == nil && (number.CanInt() && number.Int() < least || number.CanFloat() && number.Float() < float64(least))
}

// setWord sets a text to the one of the words that it is in any case.
func (s *Setting) setWord(into reflect.Value, words []string) error {
	text := into.String()
	i := slices.IndexFunc(words, func(word string) bool { return strings.EqualFold(word, text) })
	if i >= 0 {
		into.SetString(words[i])
		return nil
	}
	want := "want " + strings.Join(words, " or ")
	if s.Name == "BACKEND_TYPE" && strings.EqualFold(text, "memcache") {
		return fmt.Errorf("%s: %s", noMemcached, want)
	}
	return errors.New(want + suggest.Meant(text, words...))
}

// resolveDefaults sets the defaults that depend on other settings.
func (s *Settings) resolveDefaults(e environment) {
	if name := e["OTEL_SERVICE_NAME"]; name != "" && e["TRACING_SERVICE_NAME"] == "" {
		s.Telemetry.TracingName = name
	}
	for _, name := range []string{"USE_STATSD", "USE_DOG_STATSD", "STATSD_HOST", "STATSD_PORT"} {
		s.Telemetry.StatsdChosen = s.Telemetry.StatsdChosen || e[name] != ""
	}
	if e["USE_STATSD"] == "" && (s.Telemetry.UsePrometheus || s.Telemetry.UseDogStatsd) {
		s.Telemetry.UseStatsd = false
	}
	if s.Telemetry.DisableStats {
		s.Telemetry.UsePrometheus, s.Telemetry.UseStatsd, s.Telemetry.UseDogStatsd = false, false, false
	}
	if !s.Strict() {
		return
	}
	if e["DEFAULT_ALGORITHM"] == "" {
		s.Limits.DefaultAlgorithm = bucket.FixedWindow
	}
	if e["RESPONSE_HEADERS"] == "" {
		s.Answers.Headers = nil
	}
	if e["RESPONSE_BODY"] == "" {
		s.Answers.Body = "off"
	}
}

// Finding is what the operator should know about one setting.
type Finding struct {
	Setting string // name of the variable, "" if Text is about several
	// Text is read after the name and a colon, unless it begins with the name.
	Text string
}

// String returns the finding as one line that begins with the setting.
func (f Finding) String() string {
	if strings.HasPrefix(f.Text, f.Setting) {
		return f.Text
	}
	return f.Setting + ": " + f.Text
}

// Findings are the mistakes in an environment. As an error, they are one text.
type Findings []Finding

func (fs Findings) Error() string {
	var lines []string
	for _, f := range fs {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n")
}
