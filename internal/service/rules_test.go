package service

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/rules/xds"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestChangesOfAnXDSServerAreBounded: a server that sends changes without end cannot fill the log. The number of the
// changes without a line is in the next line. Each change of a rule file has a line.
func TestChangesOfAnXDSServerAreBounded(t *testing.T) {
	good, _ := file.Parse([]file.File{{Name: "a", Content: []byte("domain: a\ndescriptors: [{key: k}]\n")}}, file.Config{})
	_, refused := file.Parse([]file.File{{Name: "a", Content: []byte("domain: 1: 2")}}, file.Config{})
	for _, c := range []struct {
		name      string
		server    *xds.Client
		atOnce, n int
		after     string
	}{
		{"xDS", new(xds.Client), 10, 25, "left_out=15"},
		{"files", nil, 25, 25, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			out := new(testenv.Output)
			source := newRuleSource(&loadedRules{server: c.server}, rules.NewLive(rules.Options{}),
				slog.New(slog.NewTextHandler(out, nil)), func(rules.Set) {})
			for i := range c.n {
				u := rules.Update{Set: good}
				if i%2 == 1 {
					u.Problems = refused
				}
				source.update(u)
			}
			if n := strings.Count(out.String(), "\n"); n != c.atOnce {
				t.Errorf("%s: %d lines, want %d:\n%s", c.name, n, c.atOnce, out)
			}
			time.Sleep(time.Minute)
			source.update(rules.Update{Set: good})
			last := out.String()[strings.LastIndex(strings.TrimSpace(out.String()), "\n")+1:]
			if !strings.Contains(last, `msg="rules reloaded"`) || !strings.Contains(last, c.after) {
				t.Errorf("%s: the last line is %s, want one with %q", c.name, last, c.after)
			}
			if loaded, refused := source.counts(); loaded+refused != uint64(c.n+1) {
				t.Errorf("%s: %d changes loaded, %d refused; want %d in all", c.name, loaded, refused, c.n+1)
			}
		})
	}
}

// TestNamesInTheLogAreBounded: a change of many rules has ten names and the number of the others.
func TestNamesInTheLogAreBounded(t *testing.T) {
	names := strings.Fields("a b c d e f g h i j k l m")
	for n, want := range map[int]string{0: "", 10: "a b c d e f g h i j", 13: "a b c d e f g h i j and 3 more"} {
		if got := firstNames(names[:n:n]); strings.Join(got, " ") != want || got == nil {
			t.Errorf("%d names: got %q, want %q", n, got, want)
		}
	}
}
