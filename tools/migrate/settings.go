package migrate

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/suggest"
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

// Setting is a variable and what becomes of it. It never has the value.
type Setting struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Reason is the reason of a verdict other than Stays, with the remedy.
	Reason string `json:"reason,omitempty"`
}

// Settings tells what becomes of the variables of an instance of envoyproxy/ratelimit: those of its environment and
// those that a mistake names. It also returns the settings without the refused variables. It puts the variables into
// the environment of this process while it reads them.
func Settings(variables map[string]string) ([]Setting, *settings.Settings) {
	own := os.Environ()
	defer func() {
		os.Clearenv()
		for _, pair := range own {
			name, value, _ := strings.Cut(pair, "=")
			_ = os.Setenv(name, value) // it was there before
		}
	}()
	os.Clearenv()
	reasons, like := map[string]Setting{}, settings.Lookalikes(variables)
	for name, value := range variables {
		_ = os.Setenv(name, value) // no variable of a process has a name or a value that it refuses
		reasons[name] = Setting{Name: name, Verdict: Unknown, Reason: "it is no setting of either service"}
		if slices.Contains(settings.Names(), name) {
			reasons[name] = Setting{Name: name, Verdict: Stays}
		} else if reason := settings.WithoutEffect[name]; reason != "" {
			reasons[name] = Setting{name, NoEffect, reason}
		} else if slices.Contains(like, name) {
			reasons[name] = Setting{name, Unknown, "it looks like a setting, but extauthz does not know it" +
				suggest.Meant(name, settings.Names()...)}
		}
	}
	s, err := settings.Read()
	found, _ := errors.AsType[settings.Findings](err)
	for _, f := range found {
		if f.Setting == "" { // it explains another one
			continue
		}
		reasons[f.Setting] = Setting{f.Setting, Refused, f.Text}
		_ = os.Unsetenv(f.Setting) // the name is that of a setting
	}
	if err != nil {
		s, err = settings.Read()
	}
	if err != nil { // a setting lacks one of those that were refused
		os.Clearenv()
		s, _ = settings.Read()
	}
	var list []Setting
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		list = append(list, reasons[name])
	}
	return list, s
}
