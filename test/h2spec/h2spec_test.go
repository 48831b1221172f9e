// Package h2spec runs the conformance suite of HTTP/2 (github.com/summerwind/h2spec) against the native transport of
// the service. It is a module of its own, because the suite is old and has dependencies that the service must not have.
package h2spec

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	"github.com/extauthz/extauthz/test/testenv"
)

// suiteVariable has a config.Config in JSON for this binary as the process that runs the suite. The suite ends its
// process when it cannot connect, so a test cannot run it itself.
const suiteVariable = "H2SPEC_SUITE"

// binary is the path of the service, which TestMain builds once for all tests.
var binary string

func TestMain(m *testing.M) {
	if suite := os.Getenv(suiteVariable); suite != "" {
		os.Exit(runSuite(suite))
	}
	os.Exit(testenv.WithService(func(path string) int {
		binary = path
		return m.Run()
	}))
}

// suiteCases is the number of cases of the suite. A case that the suite leaves out would otherwise not be noticed.
const suiteCases = 146

// outcome is the outcome of one case.
type outcome struct {
	ID, Title       string
	Failed, Skipped bool
	Reason          string
}

// runSuite runs the suite, and writes the outcomes as the last line of stderr: stdout has the suite's own report.
func runSuite(settings string) (exitCode int) {
	var c config.Config
	if err := json.Unmarshal([]byte(settings), &c); err != nil {
		panic(err) // this binary wrote them
	}
	var all []outcome
	for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		group.Test(&c)
		all = append(all, outcomes(group)...)
	}
	if err := json.NewEncoder(os.Stderr).Encode(all); err != nil {
		panic(err) // the reader is gone
	}
	return 0
}

func outcomes(group *spec.TestGroup) (all []outcome) {
	for _, list := range [][]*spec.TestCase{group.Tests, group.StrictTests} {
		for _, test := range list {
			o := outcome{ID: group.ID(), Title: test.Desc, Skipped: true}
			if r := test.Result; r != nil {
				o.Failed, o.Skipped = r.Failed, r.Skipped
				if r.Error != nil {
					o.Reason = r.Error.Error()
				}
			}
			all = append(all, o)
		}
	}
	for _, inner := range group.Groups {
		all = append(all, outcomes(inner)...)
	}
	return all
}

// TestPlaintext runs all cases without TLS.
func TestPlaintext(t *testing.T) {
	t.Parallel()
	conform(t, config.Config{})
}

// TestTLS runs all cases with TLS.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), testenv.NewAuthority(t)
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	testenv.WriteCertificate(t, ca.Issue(t, "127.0.0.1", time.Hour), cert, key)
	conform(t, config.Config{TLS: true, Insecure: true}, "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+cert,
		"GRPC_SERVER_TLS_KEY="+key)
}

// conform runs the suite against a service, which must pass all cases.
func conform(t *testing.T, c config.Config, environment ...string) {
	t.Helper()
	rules := t.TempDir()
	if err := os.Mkdir(filepath.Join(rules, "config"), 0o755); err != nil {
		t.Fatal(err)
	}
	service := testenv.Service(t, binary, append(environment, "GRPC_TRANSPORT=native", "RUNTIME_ROOT="+rules)...)
	c.Host, c.Port, c.Path, c.Strict = "127.0.0.1", service.GRPCPort, "/", true
	c.Timeout, c.MaxHeaderLen = 5*time.Second, 4000 // those of the command h2spec, but more time
	settings, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), suiteVariable+"="+string(settings))
	var report, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &report, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("the suite: %v\n%s%s", err, report.String(), said.String())
	}
	var all []outcome
	if err := json.Unmarshal(bytes.TrimSpace(said.Bytes()), &all); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	for _, o := range all {
		if o.Failed || o.Skipped {
			t.Errorf("%s: %s: failed %t, skipped %t: %s", o.ID, o.Title, o.Failed, o.Skipped,
				strings.TrimSpace(o.Reason))
		}
	}
	if len(all) != suiteCases {
		t.Errorf("the suite has %d cases, want %d", len(all), suiteCases)
	}
}
