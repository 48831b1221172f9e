package service

import (
	"regexp"
	"testing"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestLogOfSeveralLines: a terminal shows the mistakes of a rule file below the record. Elsewhere a record is one line.
func TestLogOfSeveralLines(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    Config
		expect string
	}{
		{"a terminal", Config{Settings: &settings.Settings{}, Terminal: true},
			"^time=\\S+ level=ERROR msg=\"rules refused\" directory=d generation=g\na:1: bad\n  1 \\| x\uFFFD\n$"},
		{"a file", Config{Settings: &settings.Settings{}},
			`^time=\S+ level=ERROR msg="rules refused" directory=d generation=g problems="a:1: bad\\n  1 \| x\\x1b\\n"\n$`},
		{"JSON on a terminal", Config{Settings: &settings.Settings{Telemetry: settings.Telemetry{LogFormat: "json"}},
			Terminal: true},
			`^{.*"generation":"g","problems":"a:1: bad\\n  1 \| x\\u001b\\n"}\n$`},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := new(testenv.Output)
			c.cfg.Stderr = out
			newLogger(c.cfg).With("directory", "d").
				Error("rules refused", "generation", "g", "problems", "a:1: bad\n  1 | x\x1b\n")
			if got := out.String(); !regexp.MustCompile(c.expect).MatchString(got) {
				t.Errorf("got %q, want %s", got, c.expect)
			}
		})
	}
}
