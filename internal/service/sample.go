package service

import (
	_ "embed" // the sample
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
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
