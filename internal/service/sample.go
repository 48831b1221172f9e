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

// orchestrators are variables that these platforms set in every container: Kubernetes, Nomad, Amazon ECS. A service that runs there
// was deployed by an operator, with their own rules.
var orchestrators = []string{"KUBERNETES_SERVICE_HOST", "NOMAD_ALLOC_ID", "ECS_CONTAINER_METADATA_URI", "ECS_CONTAINER_METADATA_URI_V4"}

// useSample reports whether the built-in sample is to be served: there is no rule directory, and nothing is configured. Otherwise a
// missing directory is an error. The sample accepts a key that everyone knows, so it must never take the place of rules that were
// not mounted, or were mounted elsewhere.
func (s *Settings) useSample() (bool, error) {
	dir := s.rulesDirectory()
	if _, err := os.Stat(dir); s.ForceStart || !errors.Is(err, fs.ErrNotExist) {
		return false, nil // any other error is reported when the directory is read
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
	return false, fmt.Errorf("the rule directory %s does not exist: mount or create it, or set RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and "+
		"RUNTIME_APPDIRECTORY to the one with the rules\n(the built-in sample is served only when nothing is configured; %s)", dir, evidence)
}

// configured returns the variables that show that an operator has configured the service, sorted: every setting but those that are of
// use with the sample (tag trial), what is nearly a setting, settings of envoyproxy/ratelimit, and the variables of orchestrators.
// A variable that is set to nothing is not set.
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

// tried reports whether a setting has a value that is of use with the sample, which is served on loopback only.
func tried(name, value string) bool {
	for _, s := range List() {
		if s.Name == name {
			trial := s.field.Tag.Get("trial")
			return trial == "any" || trial == "loopback" && isLoopback(value)
		}
	}
	return false
}

// banner prints, when the sample is served, on which addresses and what to try. It is not a log line, so that no level hides it.
func banner(w io.Writer, s *Settings, l listeners) {
	fmt.Fprintf(w, `extauthz: no rules are configured (%s does not exist),
so the built-in sample is served, on loopback only, from memory.

  gRPC   %-22s for Envoy, see envoy/envoy.yaml
  HTTP   %-22s /json /check /healthcheck
  debug  %-22s /rlconfig /metrics

Try it; the sixth within a minute gets a 429:

  curl -i http://%s/json -d '%s'

And as Envoy's ext_authz filter asks, with a key that is for trying only; no key gets a 401, another one a 403:

  curl -i -H 'x-api-key: demo' http://%s/check/

`, s.rulesDirectory(), l.grpc.Addr(), l.http.Addr(), l.debug.Addr(), l.http.Addr(), rls.Example, l.http.Addr())
}
