package service

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

const calendarRules = `domain: shop
descriptors:
  - {key: team, rate_limit: {unit: month, requests_per_unit: 999999999999999, calendar: Europe/Berlin, name: budget}}
  - {key: zone, rate_limit: {unit: year, requests_per_unit: 5, calendar: Asia/Tokyo, name: zone}}
`

// TestCalendar shows a calendar and a large limit wherever the service shows limits, and counts again with another zone
// after a reload, but not with another number.
func TestCalendar(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			env := configured(func(s *settings.Settings) {
				s.Rules.Root = testenv.RulesRootWith(t, calendarRules)
				if store == "redis" {
					s.Redis.Main.URL = testenv.Redis(t).Addr
				}
			})
			_, httpAddr, debugAddr, out := start(t, env)
			logged(t, out, "zone_data=")
			take := func(key string, cost uint64) {
				postJSON(t, httpAddr, fmt.Sprintf(`{"domain":"shop","hitsAddend":1,"descriptors":[{"entries":[{"key":%q,`+
					`"value":"a"}],"hitsAddend":%d}]}`, key, cost))
			}
			take("team", 999999999999990)
			take("zone", 2)

			_, config := get(t, "http://"+debugAddr+"/rlconfig")
			for _, want := range []string{"algorithm=fixed_window, calendar=Europe/Berlin", "requests_per_unit=999999999999999",
				"\n# zone data "} {
				if !strings.Contains(config, want) {
					t.Errorf("/rlconfig lacks %q:\n%s", want, config)
				}
			}
			_, metrics := get(t, "http://"+debugAddr+"/metrics")
			berlin, _ := time.LoadLocation("Europe/Berlin")
			now := time.Now().In(berlin)
			first := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, berlin) // there, midnight exists once
			month := first.AddDate(0, 1, 0).Sub(first).Seconds()
			for _, want := range []string{
				`rule_limit{domain="shop",limit="budget",rule="team"} 9.99999999999999e+14`,
				fmt.Sprintf(`rule_window_seconds{domain="shop",limit="budget",rule="team"} %g`, month),
			} {
				if !strings.Contains(metrics, want) {
					t.Errorf("the metrics lack %q:\n%s", want, strings.Join(linesWith(metrics, "rule_"), "\n"))
				}
			}
			if _, page := get(t, "http://"+debugAddr+"/rules"); !strings.Contains(page, "per month in Europe/Berlin") {
				t.Errorf("the page of the rules lacks the zone")
			}
			show := func(descriptor string) (shown Buckets) {
				_, stdout, stderr := runProgram(t, env, "", "buckets", "show", "--domain", "shop", "-o", "json",
					"--descriptor", descriptor, "--debug", debugAddr)
				if err := json.Unmarshal([]byte(stdout), &shown); err != nil {
					t.Fatalf("%v: %s%s", err, stdout, stderr)
				}
				return shown
			}
			b := show("team=a").Buckets[0]
			if b.Used != 999999999999990 || b.Capacity != 999999999999999 || b.Calendar != "Europe/Berlin" ||
				b.Window != month || b.Reset <= 0 || b.Reset > month || b.Algorithm != "fixed_window" {
				t.Errorf("buckets show: %+v", b)
			}

			change := strings.NewReplacer("Asia/Tokyo", "Asia/Seoul", "999999999999999", "999999999999998")
			changed := change.Replace(calendarRules)
			if err := os.WriteFile(filepath.Join(env.Rules.Root, "config", "rules.yaml"), []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			logged(t, out, "rules reloaded")
			if b := show("team=a").Buckets[0]; b.Used != 999999999999990 || b.Capacity != 999999999999998 {
				t.Errorf("with another number: %+v", b)
			}
			if b := show("zone=a").Buckets[0]; b.Used != 0 || b.Calendar != "Asia/Seoul" {
				t.Errorf("with another zone: %+v", b)
			}
		})
	}
}

// TestCalendarMistakesStopTheStart checks that a month limit of another algorithm is a mistake at the start.
func TestCalendarMistakesStopTheStart(t *testing.T) {
	env := configured(func(s *settings.Settings) {
		s.Limits.CalendarMonths = true
		s.Rules.Root = testenv.RulesRootWith(t, "domain: shop\ndescriptors:\n"+
			"  - {key: a, rate_limit: {unit: month, requests_per_unit: 5, algorithm: token_bucket}}\n")
	})
	err := Run(t.Context(), Config{Settings: env, Stderr: new(testenv.Output)})
	if err == nil || !strings.Contains(err.Error(), "USE_CALENDAR_MONTH_RATE_LIMIT") {
		t.Errorf("the service starts: %v", err)
	}
}

func linesWith(text, part string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
