package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
)

// TestChartFilesFollowValues compares the chart's schema and the table in README.md with values.yaml, from which they
// are generated.
func TestChartFilesFollowValues(t *testing.T) {
	v := readValues(t)
	root := v.objectSchema(v.values)
	root["$schema"] = "http://json-schema.org/draft-07/schema#" // the newest version that all versions of Helm know
	root["title"] = "Values of the chart extauthz; generated from values.yaml by `make charts`"
	root["properties"].(schema)["global"] = schema{"type": "object",
		"description": "Values that a parent chart shares with all of its charts"}
	root["definitions"] = neededBy(root, v.definitions)
	var whole bytes.Buffer
	encoder := json.NewEncoder(&whole)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(root); err != nil {
		t.Fatal(err)
	}
	follows(t, "values.schema.json", whole.String())

	const begin, end = "<!-- values -->\n", "<!-- /values -->\n"
	readme := string(read(t, filepath.Join(chart(t), "README.md")))
	before, rest, found := strings.Cut(readme, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("README.md has no markers for the table: want %q and %q", begin, end)
	}
	follows(t, "README.md", before+begin+v.table()+end+after)
}

// follows checks that a file of the chart is up to date. With -update, it writes the file.
func follows(t *testing.T, file, want string) {
	t.Helper()
	file = filepath.Join(chart(t), file)
	if *update {
		write(t, file, []byte(want))
	}
	if diff := cmp.Diff(want, string(read(t, file))); diff != "" {
		t.Errorf("%s is out of date; `make charts` writes it (-want +got):\n%s", file, diff)
	}
}

// values has the values of the chart and their descriptions.
type values struct {
	t           *testing.T
	values      *yaml.Node
	definitions map[string]schema // of Kubernetes
	settings    []setting
	rows        []string // of the table
}

func readValues(t *testing.T) *values {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal(read(t, filepath.Join(chart(t), "values.yaml")), &document); err != nil {
		t.Fatal(err)
	}
	places, err := download()
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := kubernetesDefinitions(places[kubernetesModule])
	if err != nil {
		t.Fatal(err)
	}
	return &values{t: t, values: document.Content[0], definitions: definitions, settings: serviceSettings(t)}
}

// objectSchema returns the schema of a mapping of values.yaml. Each property has its description and the type of its
// default.
func (v *values) objectSchema(mapping *yaml.Node, path ...string) schema {
	properties, required := schema{}, []string{}
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := append(slices.Clone(path), key.Value)
		description, own := v.comment(key)
		if of, _ := own["type"].([]any); !slices.Contains(of, any("null")) {
			required = append(required, key.Value) // it has a default, so it is missing only if it is set to null
		}
		if description == "" && value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			properties[key.Value] = v.objectSchema(value, name...)
			continue
		}
		if description == "" {
			v.t.Errorf("values.yaml:%d: %s has no comment that begins with `# -- `", key.Line, strings.Join(name, "."))
		}
		s := schema{}
		if own["$ref"] == nil {
			s["type"] = typeOf(value)
		}
		if s["type"] == "object" && own["additionalProperties"] == nil {
			s["additionalProperties"] = false
		}
		for key, of := range own {
			s[key] = of
		}
		if ref, ok := s["$ref"]; ok { // validators ignore keywords beside $ref
			delete(s, "$ref")
			s["allOf"] = []any{schema{"$ref": ref}}
		}
		s["description"] = description
		properties[key.Value] = s
		v.rows = append(v.rows, row(strings.Join(name, "."), value, description))
	}
	return schema{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
}

// comment reads the comment above a value: its description, which begins with two dashes, and its part of the schema.
func (v *values) comment(key *yaml.Node) (description string, own schema) {
	var lines []string
	for line := range strings.Lines(key.HeadComment) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		if text, ok := strings.CutPrefix(line, "@schema "); ok {
			if err := yaml.Unmarshal([]byte(text), &own); err != nil {
				v.t.Fatalf("values.yaml:%d: %q: %v", key.Line, line, err)
			}
			continue
		}
		if text, ok := strings.CutPrefix(line, "-- "); ok {
			lines = []string{text}
		} else if len(lines) > 0 {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " "), v.resolve(own)
}

// resolve replaces this project's keywords in a schema: `$k8s`, a type of Kubernetes, and `$settings`.
func (v *values) resolve(s schema) schema {
	out := schema{}
	for key, value := range s {
		inner, isSchema := value.(schema)
		switch {
		case key == "$k8s":
			if v.definitions[value.(string)] == nil {
				v.t.Fatalf("values.yaml: Kubernetes has no %s", value)
			}
			out["$ref"] = "#/definitions/" + value.(string)
		case key == "$settings":
			properties := settingsSchema(v.settings)
			for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"} {
				properties[name] = schema{"type": "string", "description": "for fetching the keys of JWT issuers (jwks_url)"}
			}
			out["properties"] = properties
			// The SDK of OpenTelemetry reads the first ones (TRACING_ENABLED). USE_DOG_STATSD_MOGRIFIERS names the others.
			out["patternProperties"] = schema{
				"^OTEL_[A-Z_]+$": schema{"type": "string"},
				"^DOG_STATSD_MOGRIFIER_[A-Z0-9_]+_(PATTERN|NAME|TAGS)$": schema{"type": "string"},
			}
		case isSchema:
			out[key] = v.resolve(inner)
		default:
			out[key] = value
		}
	}
	return out
}

func typeOf(value *yaml.Node) string {
	switch value.Kind {
	case yaml.MappingNode:
		return "object"
	case yaml.SequenceNode:
		return "array"
	}
	switch value.Tag {
	case "!!bool":
		return "boolean"
	case "!!int":
		return "integer"
	}
	return "string"
}

func row(name string, value *yaml.Node, description string) string {
	of := "`" + value.Value + "`"
	if value.Kind != yaml.ScalarNode {
		var plain any
		if err := value.Decode(&plain); err != nil {
			panic(err) // the value was read as YAML
		}
		text, err := json.Marshal(plain)
		if err != nil {
			panic(err)
		}
		of = "`" + string(text) + "`"
	}
	if of == "``" || of == "`{}`" || of == "`[]`" {
		of = ""
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", name, of, strings.ReplaceAll(description, "|", `\|`))
}

// table returns the table of README.md.
func (v *values) table() string {
	return "| value | default | meaning |\n|---|---|---|\n" + strings.Join(v.rows, "")
}

// setting is a setting of the service, as `extauthz settings` prints it.
type setting struct {
	Name, Default, Meaning string
	File                   bool // the setting is a secret
}

// serviceSettings returns all settings of the service.
func serviceSettings(t *testing.T) (all []setting) {
	t.Helper()
	list, err := output(exec.Command(binary, "settings", "-o", "json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(list), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// theCharts has the settings that the chart sets itself, and the value that each comes from, or "". The schema
// accepts them, so that a template can refuse them with a helpful message (extauthz.check).
var theCharts = map[string]string{
	"HOST": "", "PORT": "", "GRPC_HOST": "", "GRPC_PORT": "", "GRPC_UDS": "", "GRPC_PLAINTEXT": "plaintext",
	"GRPC_SERVER_USE_TLS": "tls.existingSecret", "GRPC_SERVER_TLS_CERT": "tls.certKey",
	"GRPC_SERVER_TLS_KEY": "tls.keyKey", "GRPC_CLIENT_TLS_CACERT": "tls.clientCAKey",
	"GRPC_CLIENT_TLS_SAN": "tls.clientName",
	"DEBUG_HOST":          "", "DEBUG_PORT": "",
	"CONFIG_TYPE": "rules", "RUNTIME_ROOT": "rules", "RUNTIME_SUBDIRECTORY": "rules", "RUNTIME_APPDIRECTORY": "rules",
	"DRAIN_DELAY": "drain.delaySeconds", "DRAIN_TIMEOUT": "drain.timeoutSeconds",
	"BACKEND_TYPE": "redis.existingSecret", "REDIS_URL": "redis.existingSecret", "REDIS_AUTH": "redis.passwordKey",
	"REDIS_SENTINEL_AUTH": "redis.sentinelPasswordKey", "REDIS_PERSECOND": "redis.perSecondURLKey",
	"REDIS_PERSECOND_URL": "redis.perSecondURLKey", "REDIS_PERSECOND_AUTH": "redis.perSecondPasswordKey",
	"REDIS_PERSECOND_SENTINEL_AUTH": "redis.perSecondSentinelPasswordKey",
	"REDIS_TLS_CACERT":              "redis.tls.caKey", "REDIS_TLS_CLIENT_CERT": "redis.tls.certKey",
	"REDIS_TLS_CLIENT_KEY": "redis.tls.keyKey",
	"API_KEY_SECRET":       "apiKeys.existingSecret", "API_KEY_SECRET_PREVIOUS": "apiKeys.previousKey",
	"API_KEYS_FILE":        "apiKeys.fileSecret",
	"MEMORY_SNAPSHOT_PATH": "",
}

// xdsSettings are the beginnings of the names of settings for rules of an xDS server. The chart's rules are files.
var xdsSettings = []string{"CONFIG_GRPC_XDS_", "XDS_CLIENT_"}

// chartSets reports whether the chart sets a setting itself, and the value that it comes from, or "".
func chartSets(name string) (value string, ok bool) {
	value, ok = theCharts[name]
	return value, ok || slices.ContainsFunc(xdsSettings, func(p string) bool { return strings.HasPrefix(name, p) })
}

// words has the settings that accept a word of a list. TestSettingsAreCheckedAlike compares the list with the service.
var words = map[string][]any{
	"LOG_LEVEL":      {"DEBUG", "INFO", "WARN", "ERROR"},
	"LOG_FORMAT":     {"text", "json"},
	"COMPATIBILITY":  {"default", "strict"},
	"GRPC_TRANSPORT": {"native", "grpc-go"},
	"DEFAULT_ALGORITHM": {
		"sliding_window", "sliding_window_counter", "sliding_window_log", "token_bucket", "leaky_bucket", "fixed_window",
	},
	"STORE_ERROR_POLICY":          {"local", "allow", "deny"},
	"RESPONSE_BODY":               {"problem", "off"},
	"REDIS_SOCKET_TYPE":           {"tcp", "tls", "unix"},
	"REDIS_TYPE":                  {"SINGLE", "SENTINEL", "CLUSTER"},
	"REDIS_PERSECOND_SOCKET_TYPE": {"tcp", "tls", "unix"},
	"REDIS_PERSECOND_TYPE":        {"SINGLE", "SENTINEL", "CLUSTER"},
	"TRACING_EXPORTER_PROTOCOL":   {"http", "grpc"},
	"STATSD_PROTOCOL":             {"tcp", "udp"},
}

// patterns has the settings whose values must match a pattern.
var patterns = map[string]string{
	"RESPONSE_HEADERS":               "^(off|(draft|triple|x|spring)(, *(draft|triple|x|spring))*)$",
	"RESPONSE_HEADER_NAMES":          "^[^:,]+:[^:,]+(,[^:,]+:[^:,]+)*$",
	"LIMIT_LIMIT_HEADER":             headerName,
	"LIMIT_REMAINING_HEADER":         headerName,
	"LIMIT_RESET_HEADER":             headerName,
	"LIMIT_REQUEST_LIMIT_HEADER":     headerName,
	"LIMIT_REQUEST_REMAINING_HEADER": headerName,
	"LIMIT_REQUEST_RESET_HEADER":     headerName,
	"AUTHZ_HTTP_SOURCE_HEADER":       headerName,
	"AUTHZ_HTTP_PRINCIPAL_HEADER":    headerName,
	"PROMETHEUS_ADDR":                ":[0-9]+$",
	"PROMETHEUS_PATH":                "^/",
	"EXTRA_TAGS":                     "^[^:,|]+:[^,|]+(,[^:,|]+:[^,|]+)*$",
	"USE_DOG_STATSD_MOGRIFIERS":      "^[a-zA-Z0-9_]+(,[a-zA-Z0-9_]+)*$",
	"REDIS_TIMEOUT":                  duration,
	"REDIS_PERSECOND_TIMEOUT":        duration,
}

const (
	headerName = "^[-A-Za-z0-9]+$"
	duration   = "^([0-9]+([.][0-9]+)?(us|ms|s|m|h))+$"
)

// settingsSchema returns the schemas of the settings as values of the chart.
func settingsSchema(all []setting) schema {
	properties := schema{}
	for _, s := range all {
		value, charts := chartSets(s.Name)
		one := schema{"description": s.Meaning}
		switch {
		case charts:
			one["description"] = "must not be set: the chart sets it; see " + value
			if value == "" {
				one["description"] = "must not be set: the chart depends on the default"
			}
		case words[s.Name] != nil:
			one["enum"] = words[s.Name]
		case s.Default == "true" || s.Default == "false":
			one["type"] = "boolean"
		case s.Name == "TRACING_SAMPLING_RATE", s.Name == "NEAR_LIMIT_RATIO":
			one["type"], one["minimum"], one["maximum"] = "number", 0, 1
		case regexp.MustCompile("^[0-9]+$").MatchString(s.Default), s.Name == "LOCAL_FALLBACK_REPLICAS":
			one["type"], one["minimum"] = "integer", 1
		case regexp.MustCompile(duration).MatchString(s.Default):
			one["type"], one["pattern"] = "string", duration
		case patterns[s.Name] != "":
			one["type"], one["pattern"] = "string", patterns[s.Name]
		default:
			one["type"] = "string"
		}
		properties[s.Name] = one
	}
	return properties
}

// TestSettingsAreCheckedAlike checks that the schema and the service refuse the same values.
func TestSettingsAreCheckedAlike(t *testing.T) {
	rules := path(t, "deploy", "kustomize", "base", "rules")
	takes := func(name, value string) bool {
		check := exec.Command(binary, "check", rules)
		check.Env = []string{name + "=" + value}
		return check.Run() == nil
	}
	const nonsense = "no such thing"
	args, want := []string{}, []string{}
	all := serviceSettings(t)
	for _, s := range all {
		if _, charts := chartSets(s.Name); s.File && !charts {
			t.Errorf("%s is a secret, but no value of the chart names a Secret for it", s.Name)
		}
	}
	for name, s := range settingsSchema(all) {
		if _, charts := chartSets(name); charts {
			continue
		}
		for _, word := range words[name] {
			if !takes(name, word.(string)) {
				t.Errorf("the schema accepts %s=%s, the service refuses it", name, word)
			}
		}
		if !takes(name, nonsense) {
			args = append(args, "--set-string", "settings."+name+"="+nonsense)
			want = append(want, name)
		} else if s := s.(schema); s["type"] != "string" || s["pattern"] != nil {
			t.Errorf("the schema requires %v of %s, the service accepts any text", s, name)
		}
	}
	_, err := render(t, args...)
	for _, name := range want {
		if err == nil || !strings.Contains(err.Error(), "'/settings/"+name+"'") {
			t.Errorf("the service refuses %s=%s, the schema accepts it", name, nonsense)
		}
	}
}

// TestSettingsOfTheChart checks that a setting of the chart is refused with a message that names the value to use.
func TestSettingsOfTheChart(t *testing.T) {
	args, set := []string{}, map[string]string{}
	for _, s := range serviceSettings(t) {
		if value, charts := chartSets(s.Name); charts {
			set[s.Name] = value
			args = append(args, "--set", "settings."+s.Name+"=x")
		}
	}
	_, err := render(t, args...)
	if err == nil {
		t.Fatal("all settings are accepted")
	}
	for name, value := range set {
		want := "settings." + name + " must not be set: use " + value + "\n"
		if value == "" {
			want = "settings." + name + " must not be set: the chart depends on its default\n"
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}
