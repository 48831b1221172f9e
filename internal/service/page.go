package service

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/page"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/rules"
)

// addPages adds the pages for people. The overview is at / for clients that accept HTML; others get index.
func (r *requests) addPages(mux *http.ServeMux, index string) {
	pages := page.New()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, q *http.Request) {
		if !strings.Contains(q.Header.Get("Accept"), "text/html") {
			fmt.Fprint(w, index)
			return
		}
		s, active := r.newState(q, "Overview")
		s.Still, s.Stores = q.FormValue("still") != "", r.figures(active.Hide)
		s.Rules.FindBusiest(active)
		s.Keys = inspect.NewTop(r.limiter, ratelimit.ClientValues(r.Settings.Telemetry.LogClientValues))
		pages.Write(w, s)
	})
	mux.HandleFunc("GET /rules", func(w http.ResponseWriter, q *http.Request) {
		s, active := r.newState(q, "Rules")
		s.Rules.Filter = q.FormValue("filter")
		s.Rules.Page, _ = strconv.Atoi(q.FormValue("page")) // without a number, it is the first page
		s.Rules.Find(active)
		pages.Write(w, s)
	})
	mux.HandleFunc("GET /ask", func(w http.ResponseWriter, q *http.Request) {
		s, active := r.newState(q, "Explain a request")
		s.Ask = r.ask(q, active.Hide)
		pages.Write(w, s)
	})
}

// newState returns what all pages show, and the rules.
func (r *requests) newState(q *http.Request, title string) (*page.State, *page.Active) {
	secrets := settings.Hider()
	active := &page.Active{
		Rules: r.live.Limits().All(), History: &r.history, Now: time.Now(),
		Hide:  func(text string) string { return secrets(rules.Mask(text)) },
		Holds: map[*ratelimit.RuleLimit]bucket.SomeHolds{},
	}
	r.live.Limits().EachHolds(r.liveHolds, func(_ *ratelimit.Rule, l *ratelimit.RuleLimit, sum bucket.SomeHolds) {
		active.Holds[l] = sum
	})
	s := &page.State{
		Title: title, Path: q.URL.Path, Now: active.Now, Build: r.Build.Version, Ready: r.ready.accepts(q.Context()),
		GlobalShadow: r.Settings.Limits.Shadow,
	}
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	if r.source.refused != nil {
		s.Refused = active.Hide(r.source.refused.Error())
	}
	s.Source = []page.Figure{newFigure("Source", active.Hide(r.source.from()), "")}
	if !r.source.since.IsZero() {
		s.Source = append(s.Source, newFigure("Generation", r.live.Active().Set.Generation,
			"active since "+r.source.since.UTC().Format(time.RFC3339)))
	}
	if c := r.source.changes; c != nil {
		names := func(list []string) string { return cmp.Or(strings.Join(list, ", "), "none") }
		s.Source = append(s.Source, newFigure("Added by the last reload", names(c.Added), ""),
			newFigure("Removed", names(c.Removed), ""), newFigure("Changed", names(c.Changed), ""))
	}
	return s, active
}

func newFigure(name string, value any, meaning string) page.Figure {
	return page.Figure{Name: name, Value: fmt.Sprint(value), Meaning: meaning}
}

// figures returns what the stores know.
func (r *requests) figures(hide func(string) string) (list []page.Figure) {
	add := func(name string, value any, meaning string) {
		list = append(list, newFigure(name, value, meaning))
	}
	most := fmt.Sprintf("of at most %d", r.Settings.Memory.MaxBuckets)
	if r.redis == nil {
		s := r.memory.Stats()
		add("Store", "memory", "this replica counts alone")
		add("Buckets", s.Buckets, most)
		add("Replaced buckets", s.Evicted, "since the start, because there were too many")
		return list
	}
	for _, n := range r.redis.Nodes() {
		state := "does not answer: on_store_error decides"
		if n.Up {
			state = "answers"
		}
		if n.PerSecond {
			state += ", for limits per second"
		}
		add("Redis", hide(n.Name), state)
	}
	s := r.known.Stats()
	add("Last known buckets", s.Memory.Buckets, most)
	add("Replicas", s.Replicas, "divide limits while Redis does not decide")
	add("Admitted without Redis", s.Admitted, fmt.Sprintf("units; Redis has charged %d since, and may have charged %d",
		s.CaughtUp, s.Uncertain))
	add("Owing buckets", s.Owing, "wait until Redis charges them")
	add("Losses", s.Losses, "answers of Redis that showed less than was known")
	add("Leased units", s.LeaseCharged, fmt.Sprintf("charged in advance, of which %d are used", s.LeaseUsed))
	return list
}

// ask answers the form.
func (r *requests) ask(q *http.Request, hide func(string) string) page.Ask {
	a := page.Ask{
		Domain: q.FormValue("domain"), Descriptor: q.FormValue("descriptor"), Check: q.FormValue("check") != "",
		Method: q.FormValue("method"), Host: q.FormValue("host"), Path: q.FormValue("path"),
	}
	m, message := flow.RateLimit, proto.Message(nil)
	switch {
	case a.Check:
		m, message = flow.Check, inspect.CheckRequest(a.Domain, "127.0.0.1", &authv3.AttributeContext_HttpRequest{
			Scheme: "http", Protocol: "HTTP/1.1", Headers: map[string]string{},
			Method: cmp.Or(a.Method, "GET"), Host: a.Host, Path: cmp.Or(a.Path, "/"),
		})
	case a.Descriptor != "":
		d := new(ratelimitv3.RateLimitDescriptor)
		for line := range strings.Lines(a.Descriptor) {
			key, value, found := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
			if !found || key == "" {
				a.Error = "Each line of the descriptor must be KEY=VALUE."
				return a
			}
			d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		message = &rlsv3.RateLimitRequest{
			Domain: a.Domain, Descriptors: []*ratelimitv3.RateLimitDescriptor{d}, HitsAddend: 1,
		}
	default:
		return a
	}
	text, err := proto.Marshal(message)
	if err != nil {
		a.Error = "The request cannot be sent: " + err.Error() // for a text that is not UTF-8
		return a
	}
	e, b := r.Explain(q.Context(), m, string(text)), new(strings.Builder)
	e.Text(b)
	a.Verdict, a.Text, a.Answer = e.Verdict, hide(b.String()), hide(string(e.Answer))
	return a
}
