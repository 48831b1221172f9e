package service

import (
	_ "embed" // the sample
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
)

//go:embed sample/sample.yaml
var sampleRules []byte

// useSample reports whether to serve the built-in sample: there is no rule directory, and nothing is configured.
// Everyone knows its key, so it must never replace rules that are not mounted, or are mounted elsewhere.
func useSample(s *settings.Settings) (bool, error) {
	if s.Rules.ConfigType == settings.ConfigXDS {
		return false, nil
	}
	dir := s.Rules.Directory()
	if _, err := os.Stat(dir); s.Rules.ForceStart || !errors.Is(err, fs.ErrNotExist) {
		return false, nil // reading the directory reports any other error
	}
	evidence := ""
	if names := s.Process.Configured; len(names) > 0 {
		evidence = "set here: " + strings.Join(names, ", ")
	} else if _, err := os.Stat(s.Rules.Root); !errors.Is(err, fs.ErrNotExist) {
		evidence = s.Rules.Root + " exists"
	}
	if evidence == "" {
		return true, nil
	}
	return false, fmt.Errorf("the rule directory %s does not exist: mount or create it, "+
		"or set RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY to the one with the rules\n"+
		"(the built-in sample is served only when nothing is configured; %s)",
		dir, evidence)
}

// banner prints the addresses of the sample and commands to try. It is not a log line, so that no level hides it.
func banner(w io.Writer, s *settings.Settings, l listeners) {
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

`, s.Rules.Directory(), l.address("grpc"), l.address("http"), l.address("debug"), l.address("http"), rls.Example,
		l.address("http"))
}
