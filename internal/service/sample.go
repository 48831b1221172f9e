package service

import (
	_ "embed" // the sample
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/envoy/rls"
)

//go:embed sample/sample.yaml
var sampleRules []byte

// orchestrators are variables that Kubernetes, Nomad and Amazon ECS set in every container. An operator who deploys the
// service there has rules.
var orchestrators = []string{"KUBERNETES_SERVICE_HOST", "NOMAD_ALLOC_ID", "ECS_CONTAINER_METADATA_URI",
	"ECS_CONTAINER_METADATA_URI_V4"}

// useSample reports whether to serve the built-in sample: there is no rule directory, and nothing is configured. If
// something is configured, a missing directory is an error. The sample accepts a key that everyone knows, so it must
// never replace rules that are not mounted, or are mounted elsewhere.
func (s *Settings) useSample() (bool, error) {
	if s.ConfigType == configXDS {
		return false, nil
	}
	dir := s.rulesDirectory()
	if _, err := os.Stat(dir); s.ForceStart || !errors.Is(err, fs.ErrNotExist) {
		return false, nil // reading the directory reports any other error
	}
	evidence := ""
	if names := s.environment.configured(); len(names) > 0 {
		evidence = "set here: " + strings.Join(names, ", ")
	} else if _, err := os.Stat(s.RuntimeRoot); !errors.Is(err, fs.ErrNotExist) {
		evidence = s.RuntimeRoot + " exists"
	}
	if evidence == "" {
		return true, nil
	}
	return false, fmt.Errorf("the rule directory %s does not exist: mount or create it, or set RUNTIME_ROOT, "+
		"RUNTIME_SUBDIRECTORY and "+
		"RUNTIME_APPDIRECTORY to the one with the rules\n(the built-in sample is served only when nothing is configured; %s)",
		dir, evidence)
}

// configured returns, sorted, the variables which show that an operator has configured the service. These are settings
// without the tag trial, misspelt settings, settings of envoyproxy/ratelimit, and variables of orchestrators. An empty
// variable does not count.
func (e Environment) configured() (names []string) {
	known := settingNames()
	for name, value := range e {
		switch {
		case value == "" || tried(name, value):
		case slices.Contains(known, name), ofRatelimit(name), nearSetting(name, known) != "",
			strings.HasPrefix(name, "RUNTIME_"), slices.Contains(orchestrators, name):
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// tried reports whether a setting has a value that fits the sample, which is served on loopback only.
func tried(name, value string) bool {
	for _, s := range List() {
		if s.Name == name {
			trial := s.field.Tag.Get("trial")
			return trial == "any" || trial == "loopback" && isLoopback(value)
		}
	}
	return false
}

// banner prints the addresses of the sample and commands to try. It is not a log line, so that no level hides it.
func banner(w io.Writer, s *Settings, l listeners) {
	fmt.Fprintf(w, `extauthz: no rules are configured (%s does not exist),
so the built-in sample is served, on loopback only, from memory.

  gRPC   %-22s for Envoy, see envoy/envoy.yaml
  HTTP   %-22s /json /check /healthcheck
  debug  %-22s /rlconfig /metrics

Send this six times in a row; the sixth request gets 429:

  curl -i http://%s/json -d '%s'

Send a request as Envoy's ext_authz filter does, with the trial key.
Without a key the answer is 401, with another key 403:

  curl -i -H 'x-api-key: demo' http://%s/check/

`, s.rulesDirectory(), l.grpc.Addr(), l.http.Addr(), l.debug.Addr(), l.http.Addr(), rls.Example, l.http.Addr())
}
