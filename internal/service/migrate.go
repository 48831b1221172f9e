package service

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Verdict is what becomes of a variable of envoyproxy/ratelimit.
type Verdict string

// The verdicts.
const (
	Stays    Verdict = "stays"     // it has the same name and meaning
	NoEffect Verdict = "no effect" // it is accepted and ignored
	Refused  Verdict = "refused"   // the service does not start with it
	Unknown  Verdict = "unknown"   // it is no setting
)

// MigratedSetting is a variable and what becomes of it. It never has the value.
type MigratedSetting struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Reason is the reason of a verdict other than Stays, with the remedy.
	Reason string `json:"reason,omitempty"`
}

// Migrate tells what becomes of the variables of an instance of envoyproxy/ratelimit: those of its environment and
// those that a mistake names. It also returns the settings without the refused variables.
func (e Environment) Migrate() ([]MigratedSetting, *Settings) {
	reasons := map[string]MigratedSetting{}
	for name := range e {
		reasons[name] = MigratedSetting{Name: name, Verdict: Unknown, Reason: "it is no setting of either service"}
		if slices.Contains(settingNames(), name) {
			reasons[name] = MigratedSetting{Name: name, Verdict: Stays}
		} else if ofRatelimit(name) {
			reasons[name] = MigratedSetting{Name: name, Verdict: NoEffect}
		}
	}
	for _, warning := range e.ineffective() {
		name, reason := ofVariable(warning)
		verdict := NoEffect
		if !ofRatelimit(name) {
			verdict = Unknown
		}
		reasons[name] = MigratedSetting{name, verdict, reason}
	}
	accepted := maps.Clone(e)
	s, err := ReadSettings(e)
	for _, mistake := range all(err) {
		name, reason := ofVariable(mistake.Error())
		if name == "" {
			continue // the explanation of STRICT_ENVIRONMENT
		}
		reasons[name] = MigratedSetting{name, Refused, reason}
		delete(accepted, name)
	}
	if err != nil {
		s, err = ReadSettings(accepted)
	}
	if err != nil { // a setting lacks one of those that were refused
		s, _ = ReadSettings(nil)
	}
	var list []MigratedSetting
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		list = append(list, reasons[name])
	}
	return list, s
}

// all returns the errors that errors.Join has joined.
func all(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return nil
}

var variableName = regexp.MustCompile(`^[A-Z][A-Z0-9_]*`)

// ofVariable returns the variable with which a message begins, and the message without it where it stays a sentence.
func ofVariable(message string) (name, reason string) {
	name = variableName.FindString(message)
	rest := message[len(name):]
	for _, between := range []string{" has no effect: ", ": "} {
		if reason, ok := strings.CutPrefix(rest, between); ok {
			return name, reason
		}
	}
	if strings.HasPrefix(rest, " is not ") {
		return name, "it" + rest
	}
	return name, message
}
