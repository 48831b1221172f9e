package service

import (
	"regexp"
	"testing"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestLogOfMistakes: a terminal shows the mistakes of a rule file below the record. Elsewhere a record is one line: in
// JSON each mistake is an object, else an attribute. Of many mistakes, such a record has the first ten.
func TestLogOfMistakes(t *testing.T) {
	mistake := rules.Problems{{
		File: "a.yaml", Line: 1, Column: 3, Length: 2, Source: "x bad",
		Message: "bad\x1b", Hints: []string{"write b", "or c"},
	}}
	many := append(rules.Problems{{File: "dir", Message: "no", Warning: true}}, mistake...)
	for len(many) < 12 {
		many = append(many, mistake...)
	}
	for _, c := range []struct {
		name, format string
		terminal     bool
		problems     rules.Problems
		expect       string
	}{
		{"a terminal", "text", true, mistake, "^time=\\S+ level=ERROR msg=refused directory=d errors=1\n" +
			"a\\.yaml:1:3: error: bad\uFFFD\n    1 \\| x bad\n      \\|   \\^\\^\n      = write b\n      = or c\n\n" +
			"1 error, 0 warnings\n$"},
		{"a file", "text", false, mistake,
			`^time=\S+ level=ERROR msg=refused directory=d errors=1 problems.0="a.yaml:1:3: error: bad\\x1b; write b; or c"\n$`},
		{"JSON on a terminal", "json", true, mistake,
			`^{.*"directory":"d","errors":1,"problems":\[{"file":"a.yaml","line":1,"column":3,"length":2,` +
				`"severity":"error","message":"bad\\u001b","hints":\["write b","or c"\]}\]}\n$`},
		{"many in a file", "text", false, many, `errors=11 problems.0="dir: warning: no" problems.1=.* problems.9=[^=]*\n$`},
		{"many in JSON", "json", false, many, `"errors":11,"problems":\[({[^}]*},?){10}\]}\n$`},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := new(testenv.Output)
			s := &settings.Settings{Telemetry: settings.Telemetry{LogFormat: c.format}}
			newLogger(Config{Settings: s, Terminal: c.terminal, Stderr: out}).With("directory", "d").
				Error("refused", "errors", len(c.problems.Errors()), "problems", c.problems)
			if got := out.String(); !regexp.MustCompile(c.expect).MatchString(got) {
				t.Errorf("got %q, want %s", got, c.expect)
			}
		})
	}
}
