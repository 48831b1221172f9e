// Package page turns what a replica knows of its rules, keys and stores into HTML pages without scripts.
package page

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// State is what a page shows. It has no secrets.
type State struct {
	// Title names the page; its address is Path.
	Title, Path string
	Now         time.Time
	// Build is the version. Ready means that the replica accepts requests.
	Build string
	Ready bool
	// GlobalShadow means that SHADOW_MODE lets all requests pass.
	GlobalShadow bool
	// Still means that the overview does not load itself again.
	Still bool
	// Refused are the mistakes for which newer rules are refused. Source is where the active ones are from.
	Refused        string
	Source, Stores []Figure
	Rules          Rules
	Keys           *inspect.Top
	Ask            Ask
}

// Figure is a name with its value, and what the value means.
type Figure struct{ Name, Value, Meaning string }

// Rules are rules of a page. Matching is how many match the filter, of Total. Previous and Next are pages, 0 for none.
type Rules struct {
	Filter                      string
	Page, Pages, Previous, Next int
	Total, Matching             int
	Rows                        []Row
}

// Row is a rule.
type Row struct {
	rule         *ratelimit.Rule
	Domain, Name string
	Sentences    []string
	Holds        []string  // of each limit that has had any
	Activity     *Activity // nil for one that is not kept
}

// Ask is the form that asks why a request would pass. Its fields are what was asked.
type Ask struct {
	Domain, Descriptor, Method, Host, Path string
	// Check means that it was asked about a request of ext_authz.
	Check bool
	// Verdict and Text answer it, and Answer is that to Envoy in JSON. Error is why it cannot be answered.
	Verdict, Text, Answer string
	Error                 string
}

// Active are the active rules and what is known of them at a time.
type Active struct {
	Rules   []*ratelimit.Rule
	History *History
	Now     time.Time
	// Hide returns a text without secrets.
	Hide func(string) string
	// Holds are the live holds of limits, as far as they are known.
	Holds map[*ratelimit.RuleLimit]bucket.SomeHolds
}

const (
	perPage = 100 // rules of a page
	busiest = 10  // rules of the overview
	nearest = 20  // keys of the overview
)

// NearKeys removes keys that are only hot, and returns the first of the others.
func (s *State) NearKeys() []ratelimit.HotKey {
	s.Keys.Keys = slices.DeleteFunc(s.Keys.Keys, func(k ratelimit.HotKey) bool { return k.State == ratelimit.HotOnly })
	return s.Keys.Keys[:min(len(s.Keys.Keys), nearest)]
}

// Find fills in the rules with a text in their name.
func (r *Rules) Find(a *Active) {
	r.Total = len(a.Rules)
	var found []*ratelimit.Rule
	for _, rule := range a.Rules {
		if strings.Contains(strings.ToLower(a.Hide(rule.Domain+"."+rule.Name)), strings.ToLower(r.Filter)) {
			found = append(found, rule)
		}
	}
	r.Matching, r.Pages = len(found), max(1, (len(found)+perPage-1)/perPage)
	r.Page = min(max(1, r.Page), r.Pages)
	r.Previous, r.Next = r.Page-1, (r.Page+1)%(r.Pages+1)
	begin := (r.Page - 1) * perPage
	for _, rule := range found[begin:min(begin+perPage, len(found))] {
		r.Rows = append(r.Rows, Row{rule: rule, Activity: a.History.Of(rule, a.Now)})
	}
	a.describe(r.Rows)
}

// FindBusiest fills in the rules with the highest rates, of those that had requests in the last hour.
func (r *Rules) FindBusiest(a *Active) {
	r.Total = len(a.Rules)
	for _, rule := range a.Rules[:min(len(a.Rules), maxRules)] {
		if of := a.History.Of(rule, a.Now); of != nil && of.Requests+of.ShadowDenied > 0 {
			r.Rows = append(r.Rows, Row{rule: rule, Activity: of})
		}
	}
	slices.SortStableFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Activity.Rate, a.Activity.Rate), cmp.Compare(b.Activity.Requests, a.Activity.Requests))
	})
	r.Rows = r.Rows[:min(len(r.Rows), busiest)]
	a.describe(r.Rows)
}

// describe fills in the texts of rows.
func (a *Active) describe(rows []Row) {
	for i := range rows {
		row := &rows[i]
		row.Domain, row.Name = a.Hide(row.rule.Domain), a.Hide(row.rule.Name)
		for k := range row.rule.Limits {
			l := &row.rule.Limits[k]
			row.Sentences = append(row.Sentences, a.Hide(Sentence(row.rule, l)))
			if text := holdsOf(l, a.Holds[l]); text != "" {
				row.Holds = append(row.Holds, text)
			}
		}
	}
}

// holdsOf returns the live holds of a limit, and how others have ended; "" if there were none.
func holdsOf(l *ratelimit.RuleLimit, live bucket.SomeHolds) string {
	c := l.Counters
	if c == nil { // its rule counts by values
		c = new(ratelimit.Counters)
	}
	settled, unknown, expired, undone := c.Settled.Load(), c.Unknown.Load(), c.Expired.Load(), c.Undone.Load()
	if live.Number == 0 && settled+unknown+expired+undone == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s; since the start %d settled, %d expired, %d undone; settlements without a hold: %d",
		suggest.Counted(int(live.Number), "live hold"), suggest.Counted(int(live.Units), "unit"), settled, expired, undone,
		unknown)
}

// Shares returns the shares of requests of the last hour that were denied, or would have been.
func (a *Activity) Shares() string {
	share := func(n uint64) string { return fmt.Sprintf("%.3g %%", 100*float64(n)/float64(max(1, a.Requests))) }
	switch {
	case a.Denied+a.ShadowDenied == 0:
		return "none denied"
	case a.ShadowDenied == 0:
		return share(a.Denied) + " denied"
	case a.Denied == 0:
		return share(a.ShadowDenied) + " would be denied"
	}
	return share(a.Denied) + " denied, " + share(a.ShadowDenied) + " would be"
}

// Spark is the last hour as a picture of 60 by 20: the outlines of all requests, and of those over their limit.
type Spark struct{ Requests, Denied, Text string }

// Spark draws the last hour.
func (a *Activity) Spark() Spark {
	const height = 20
	most := uint64(1)
	for _, m := range a.minutes {
		most = max(most, m.Requests)
	}
	outline := func(of func(m ratelimit.Sum) uint64) string {
		var b strings.Builder
		up := func(i int) uint64 { return (of(a.minutes[i])*height + most - 1) / most }
		for begin, end := 0, 0; begin < minutes; begin = end {
			for end = begin; end < minutes && up(end) == up(begin); end++ {
			}
			fmt.Fprintf(&b, "V%dh%d", height-min(height, up(begin)), end-begin)
		}
		return "M0 20" + b.String() + "V20z"
	}
	return Spark{
		Requests: outline(func(m ratelimit.Sum) uint64 { return m.Requests }),
		Denied:   outline(func(m ratelimit.Sum) uint64 { return max(m.Denied, m.ShadowDenied) }),
		Text: fmt.Sprintf("%s in the last hour, at most %d in a minute; %d denied, %d would be",
			suggest.Counted(int(a.Requests), "request"), min(most, a.Requests), a.Denied, a.ShadowDenied),
	}
}

var (
	//go:embed page.css
	style string
	//go:embed page.html
	text string
)

// Pages writes pages.
type Pages struct {
	template *template.Template
	policy   string
}

// New parses the pages.
func New() *Pages {
	sum := sha256.Sum256([]byte(style))
	return &Pages{
		template: template.Must(template.New("page").Parse(strings.Replace(text, "STYLE", style, 1))),
		policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
	}
}

// Write answers with the page that a State has.
func (p *Pages) Write(w http.ResponseWriter, s *State) {
	var b strings.Builder
	if err := p.template.Execute(&b, s); err != nil {
		http.Error(w, "the page has a bug: "+err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(b.String())) // an error means that the operator has gone
}
