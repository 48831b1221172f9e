package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/doctor"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/test/testenv"
)

const (
	goodRules = "domain: good\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n"
	badRules  = "domain: bad\ndescriptors:\n  - key: k\n    rate_limt: {unit: hour, requests_per_unit: 1}\n"
)

// TestCheckPaths checks directories, files and standard input together. Each mistake names its file.
func TestCheckPaths(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for path, content := range map[string]string{good: goodRules, bad: badRules} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args, stdin string
		code        int
		want        string
	}{
		{good, "", 0, "ok: 1 domain, 1 limit"},
		{"-", goodRules, 0, "ok: 1 domain, 1 limit"},
		{"- " + good, strings.Replace(goodRules, "good", "other", 1), 0, "ok: 2 domains, 2 limits"},
		{"- " + good, goodRules, 1, "domain"}, // twice
		{bad, "", 1, bad + ":4:5: error: "},
		{"-", badRules, 1, "standard input:4:5: error: "},
		{good + " -", badRules, 1, "standard input:4:5: error: "},
		{dir, "", 1, bad + ":4:5: error: "},
		{"-", "", 1, "standard input: error: "},
		{"/dev/null", "", 1, "/dev/null: error: left out: not a regular file"},
		{t.TempDir(), "", 0, "warning: no rule files in this directory\n"}, // as serve
	} {
		var out, stderr bytes.Buffer
		if code := run(t, nil, "check "+c.args, c.stdin, &out, &stderr); code != c.code ||
			!strings.Contains(out.String(), c.want) || stderr.Len() > 0 {
			t.Errorf("check %s: exit code %d, want %d, %q and no messages in\n%s%s", c.args, code, c.code, c.want, &out, &stderr)
		}
	}
}

// TestCheckKeys reports plans of valid keys that no rule names.
func TestCheckKeys(t *testing.T) {
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys.jsonl")
	var out bytes.Buffer
	testenv.Setenv(t, variables{"API_KEY_SECRET": strings.Repeat("s3cret", 10), "API_KEYS_FILE": keys})
	var last struct{ ID string }
	for _, args := range []string{"--plan gold", "--plan glod", "--plan glod", "--plan free", "", "--plan old"} {
		out.Reset()
		code := runHere("keys create -o json --owner ann "+args, "", &out, &out)
		if err := json.Unmarshal(out.Bytes(), &last); err != nil || code != 0 {
			t.Fatal(err, out.String())
		}
	}
	if code := runHere("keys revoke "+last.ID, "", &out, &out); code != 0 {
		t.Fatal(out.String())
	}
	const minute = "rate_limit: {unit: minute, requests_per_unit: 1}"
	const policy = "authz: {credentials: [{api_key: {header: x-api-key}}], " +
		"limits: [{actions: [{credential: {field: plan, key: tier}}]}]}\n"
	const glod = "keys.jsonl: warning: no rule names the plan `glod` of 2 keys\n"
	const free = "keys.jsonl: warning: no rule names the plan `free` of 1 key\n"
	for name, c := range map[string]struct {
		rules string
		want  []string
	}{
		"by a policy": {policy + "descriptors: [{key: tier, value: gold, " + minute + "}, {key: tier, " + minute + "}]\n",
			[]string{glod + "      = did you mean `gold`?\n", free, "0 errors, 2 warnings"}},
		"by a header and with a wildcard": {"descriptors: [{key: a, descriptors: [{key: p, value: g*, " + minute + "}]}]\n",
			[]string{free + "      = add a descriptor with this `value`, or correct the plan\n", "0 errors, 1 warning"}},
		"alike": {policy + "descriptors: [{key: tier, " + minute + "}]\n", nil},
	} {
		for _, format := range []string{"text", "json"} {
			out.Reset()
			code := runHere("check -o "+format+" --keys "+keys+" -", "domain: shop\n"+c.rules, &out, &out)
			for _, want := range c.want {
				if format == "json" {
					_, want, _ = strings.Cut(strings.Split(want, "\n")[0], "warning: ")
				}
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s: no %q in\n%s", name, want, &out)
				}
			}
			if code != 0 || strings.Contains(out.String(), "no rule names") != (c.want != nil) {
				t.Errorf("%s: exit code %d, %s", name, code, &out)
			}
		}
	}
}

func TestCheckJSON(t *testing.T) {
	for _, c := range []struct {
		args, stdin string
		code        int
		want        checked
	}{
		{"-", goodRules, 0, checked{OK: true, Domains: 1, Limits: 1, Problems: strictyaml.Problems{}}},
		{"-", badRules, 1, checked{Problems: strictyaml.Problems{{
			File: "standard input", Line: 4, Column: 5, Length: 9,
			Message: "unknown key `rate_limt` in a descriptor", Hints: []string{"did you mean `rate_limit`?"},
		}}}},
		{"--envoy ../../envoy/envoy.yaml ../../internal/service/sample", "", 0, checked{
			OK: true, Domains: 1, Limits: 8, Reports: []*doctor.Report{{At: "../../envoy/envoy.yaml",
				Facts: []string{"1 connection manager with ext_authz or ratelimit"}}},
			Problems: strictyaml.Problems{},
		}},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t, nil, "check -o json "+c.args, c.stdin, &stdout, &stderr); code != c.code || stderr.Len() > 0 {
			t.Errorf("check %s: exit code %d, want %d, and nothing in\n%s", c.args, code, c.code, &stderr)
		}
		var got struct{ Generation string }
		if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.Generation == "" {
			t.Error("no generation")
		}
		c.want.Generation = got.Generation
		var want bytes.Buffer
		if err := command.PrintJSON(&want, c.want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), stdout.String()); diff != "" {
			t.Errorf("check %s (-want +got):\n%s", c.args, diff)
		}
	}
}

// TestCheckSARIF validates SARIF output. testdata/sarif.schema.json has the parts of the SARIF 2.1.0 schema that
// extauthz check fills in.
func TestCheckSARIF(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("testdata/sarif.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	empty, bad := t.TempDir(), filepath.Join(t.TempDir(), "a rule.yaml")
	if err := os.WriteFile(bad, []byte(badRules), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, stdin string
		code        int
		results     string // level, URI and region
	}{
		{"-", goodRules, 0, ""},
		{"-", badRules, 1, "error standard%20input &{4 5 14}"},
		{bad, "", 1, "error file://" + strings.ReplaceAll(bad, " ", "%20") + " &{4 5 14}"},
		{"--overlay=" + bad, "", 1, "error file://" + strings.ReplaceAll(bad, " ", "%20") + " &{1 1 7}\n" +
			"error file://" + strings.ReplaceAll(bad, " ", "%20") + " &{2 1 12}"},
		{empty, "", 0, "warning file://" + empty + " <nil>"},
	} {
		var stdout, stderr bytes.Buffer
		p := &program{command.Program{Stdin: strings.NewReader(c.stdin), Stdout: &stdout, Stderr: &stderr}}
		if code := p.run([]string{"check", "-o", "sarif", c.path}); code != c.code || stderr.Len() > 0 {
			t.Errorf("check %s: exit code %d, want %d, and nothing in\n%s", c.path, code, c.code, &stderr)
		}
		var log struct {
			Runs []struct {
				Results []struct {
					Level     string
					Locations []struct {
						PhysicalLocation struct {
							ArtifactLocation struct{ URI string }
							Region           *struct{ StartLine, StartColumn, EndColumn int }
						}
					}
				}
			}
		}
		if err := json.Unmarshal(stdout.Bytes(), &log); err != nil {
			t.Fatal(err)
		}
		var results []string
		for _, r := range log.Runs[0].Results {
			at := r.Locations[0].PhysicalLocation
			results = append(results, fmt.Sprint(r.Level, " ", at.ArtifactLocation.URI, " ", at.Region))
		}
		if got := strings.Join(results, "\n"); got != c.results {
			t.Errorf("check %s: %s\nwant %s", c.path, got, c.results)
		}
		instance, err := jsonschema.UnmarshalJSON(&stdout)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(instance); err != nil {
			t.Errorf("check %s: %v", c.path, err)
		}
	}
}

// TestCheckOverlay compares an overlay with the text of /rlconfig, in a file and at a URL.
func TestCheckOverlay(t *testing.T) {
	const dump = "shop.api_key: unit=MINUTE requests_per_unit=100, shadow_mode: false, quota_mode: false, name=per-key, " +
		"algorithm=token_bucket, burst=300, at=resource `a`: descriptors[0]\n" +
		"shop.api_key.path_/search*: unit=SECOND requests_per_unit=10, shadow_mode: false, quota_mode: false\n" +
		"shop.api_key.path_/search*: unit=HOUR requests_per_unit=1000, shadow_mode: false, quota_mode: false\n" +
		"shop.health: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, unlimited=true\n" +
		"shop authz: credentials=none anonymous=allow\nno line of a limit\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/rlconfig" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, dump)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	overlay, file := filepath.Join(dir, "overlay.yaml"), filepath.Join(dir, "rlconfig")
	if err := os.WriteFile(file, []byte(dump), 0o600); err != nil {
		t.Fatal(err)
	}
	const policy = "{rule: api_key, shadow_mode: true}\n    authz: {anonymous: allow, "
	const replaces = "{rule: api_key.path_/search*, rate_limit: {name: searches, replaces: [{name: per-key}]}}"
	for _, c := range []struct {
		rule, rlconfig string // rule is what is in the list of rules, and the lines after it
		code           int
		want           string // a part of the output
	}{
		{replaces, file, 0, "ok: " + overlay + ", compared with 3 rules of its domains\n"},
		{replaces, server.URL, 0, "compared with 3 rules"},
		{replaces, server.URL + "/rlconfig", 0, "compared with 3 rules"},
		{replaces, "", 0, "ok: " + overlay + ", not compared with rules\n"},
		{"{rule: api_key.path_/serch*, shadow_mode: true}", file, 0,
			"overlay.yaml:3:20: warning: no rule of domain `shop` matches\n"},
		{"{rule: api_key.path_/serch*, shadow_mode: true}", file, 0, "= did you mean `api_key.path_/search*`?"},
		{"{name: per-kye, shadow_mode: true}", server.URL, 0, "= did you mean `per-key`?"},
		{"{rule: api_key, rate_limit: {burst: 5}}", file, 1, "/rlconfig: shop.api_key.rate_limit.burst: error: " +
			"`burst` has no meaning for sliding_window\n"},
		{"{rule: api_key, rate_limit: {burst: 5}}", file, 1, "= the overlay changes this rule at " + overlay + ":3"},
		{"{rule: api_key, rate_limit: {replaces: [{name: per-ky}]}}", file, 0,
			"no limit of domain `shop` is named `per-ky`: there is nothing to replace"},
		{"{rule: api_key, rate_limit: {hash_tag: api_key, enforce: {percent: 5, by: api_key}}}", file, 0, "compared with"},
		{"{rule: api_key, rate_limit: {hash_tag: api_key}, shadow_mode: true}, " +
			"{rule: api_key, rate_limit: {hash_tag: path}}", "", 0, "`rate_limit.hash_tag` of the same rule is set twice"},
		{"{rule: health, rate_limit: {burst: 5}}", file, 1, "should not specify `burst` when unlimited"},
		{"{rule: api_key, rate_limit: {unit: hour}}", file, 1, "`unit` comes from the xDS server"},
		{"{rule: api_key, rate_limit: {}}", "", 1, "an element of `rules` adds nothing"},
		{"{rule: api_key, shadow_mode: false}", file, 0, "compared with"},
		// What the service refuses without rules, with and without --rlconfig.
		{"\nnetworks: {office: [10.0.0.1/8]}", "", 1, "overlay.yaml:4:21: error: `10.0.0.1/8` has bits beyond the first 8\n"},
		{"\nnetworks: {office: [10.0.0.1/8]}", file, 1, "overlay.yaml:4:21: error: `10.0.0.1/8` has bits"},
		{"\nnetworks: {office: {file: a.txt}}", "", 1, "error: an overlay has no prefix files\n"},
		{policy + "access: [{networks: [office], require: denied}]}", "", 1, "error: unknown network `office`\n"},
		{policy + "access: [{networks: [office], require: denied}]}", file, 1,
			"= add it at the top level: `networks: {office: [10.0.0.0/8]}`\n"},
		{policy + "limits: [{actions: [{remote_address: {networks: [office]}}]}]}", "", 1, "unknown network `office`"},
		{policy + "limits: [{actions: [{remote_address: {}}]}]}", "", 0, "not compared with rules\n"},
		{policy + "limit_headers: {x-auth-owner: \"{limit}\"}}", "", 1, "x-auth-owner"},
		{"{rule: api_key, rate_limit: {headers: {X-Auth-Owner: \"{limit}\"}}}\n    authz: {anonymous: allow}", file, 1,
			"`x-auth-owner` is an identity header and a header for the client\n"},
	} {
		list, rest, _ := strings.Cut(c.rule, "\n")
		content := "domains:\n  - domain: shop\n    rules: [" + list + "]\n" + rest + "\n"
		if err := os.WriteFile(overlay, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		args := "check --overlay " + overlay
		if c.rlconfig != "" {
			args += " --rlconfig " + c.rlconfig
		}
		var out, stderr bytes.Buffer
		if code := run(t, nil, args, "", &out, &stderr); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit code %d, want %d and %q in\n%s%s", c.rule, code, c.code, c.want, &out, &stderr)
		}
		text := out.String()
		out.Reset()
		var report checked
		if code := run(t, nil, args+" -o json", "", &out, &stderr); code != c.code {
			t.Errorf("%s: exit code %d as JSON, want %d", c.rule, code, c.code)
		}
		if err := json.Unmarshal(out.Bytes(), &report); err != nil {
			t.Fatalf("%s: %v in\n%s", c.rule, err, &out)
		}
		inText := strings.Count(text, ": error: ") + strings.Count(text, ": warning: ")
		if report.OK != (c.code == 0) || len(report.Problems) != inText {
			t.Errorf("%s: as text\n%s\nas JSON\n%s", c.rule, text, &out)
		}
		for _, problem := range report.Problems {
			if !strings.Contains(text, ": "+problem.Message+"\n") {
				t.Errorf("%s: the problem %q of JSON is not in\n%s", c.rule, problem.Message, text)
			}
		}
	}
	for _, c := range []struct{ args, want string }{
		{"check --rlconfig " + file, "add --overlay FILE"},
		{"check --rlconfig " + file + " " + dir, "add --overlay FILE"},
		{"check --overlay " + overlay + " --envoy envoy.yaml", "--envoy and --keys need rules"},
		{"check --overlay " + overlay + " --rlconfig " + server.URL + "/other", "404"},
		{"check --overlay " + overlay + " --rlconfig " + dir + "/none", "no such file"},
		{"check --overlay " + dir + "/none", "no such file"},
	} {
		var out, stderr bytes.Buffer
		code := run(t, nil, c.args, "", &out, &stderr)
		if code == 0 || !strings.Contains(out.String()+stderr.String(), c.want) {
			t.Errorf("%s: exit code %d, want another and %q in\n%s%s", c.args, code, c.want, &out, &stderr)
		}
	}
}
