package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
)

// IsURL reports whether a text is meant as a URL, and not as the path of a file.
func IsURL(text string) bool {
	return strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")
}

// Get returns what a URL answers with status 200, at most so many bytes. It uses no proxy and follows no redirect. Its
// errors do not repeat the URL, which may have a password.
func Get(ctx context.Context, address string, timeout time.Duration, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errors.New("want a URL such as http://127.0.0.1:9901")
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("no answer within %s", timeout)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: check that it runs and that the URL is right", errors.Unwrap(err))
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 200)) // enough to recognize it
		first, _, _ := strings.Cut(string(body), "\n")
		return nil, fmt.Errorf("%s %q, want 200", res.Status, first)
	}
	return io.ReadAll(io.LimitReader(res.Body, most))
}

// window is the time between two readings of the counters.
const window = time.Second

// read reads what the admin interface of Envoy has at a path.
func read(ctx context.Context, address, path, query string) ([]byte, error) {
	if u, err := url.Parse(address); err == nil {
		u.Path, u.RawQuery = path, query
		address = u.String()
	}
	return Get(ctx, address, 10*time.Second, kind().MaxSize+1)
}

func readJSON(ctx context.Context, address, path, query string, into any) error {
	body, err := read(ctx, address, path, query)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	return err
}

// Examine adds what the Envoy with this configuration knows: its version, and its counters, which are read twice.
func (c *Configuration) Examine(ctx context.Context, address string) {
	if c.Unread {
		return
	}
	var info struct{ Version string }
	err := readJSON(ctx, address, "/server_info", "", &info)
	if version, supported := envoyVersion(info.Version); version == "" {
		c.unknown("the version of Envoy", errors.Join(err, fmt.Errorf("%s has no number", suggest.Quoted(info.Version))))
	} else {
		c.check(!supported, "envoy-version", "Envoy "+version)
	}
	before, err := readStats(ctx, address)
	select {
	case <-time.After(window):
	case <-ctx.Done():
	}
	after, failed := readStats(ctx, address)
	clusters, unread := read(ctx, address, "/clusters", "")
	if err = errors.Join(err, failed, unread); err != nil {
		c.unknown("failures at this moment, and clusters", err)
		return
	}
	for _, filter := range slices.Sorted(maps.Keys(c.filters)) {
		c.failures(filter, before, after)
	}
	hosts := hostsOf(string(clusters))
	for _, name := range slices.Sorted(maps.Keys(c.clusters)) {
		c.cluster(name, c.clusters[name], hosts[name], before, after)
	}
}

type hosts struct{ healthy, all int }

// hostsOf reads /clusters, with lines such as "extauthz::127.0.0.1:8081::health_flags::/failed_active_hc".
func hostsOf(text string) map[string]hosts {
	clusters := map[string]hosts{}
	for line := range strings.Lines(text) {
		if host, flags, found := strings.Cut(strings.TrimSpace(line), "::health_flags::"); found {
			name, _, _ := strings.Cut(host, "::")
			h := clusters[name]
			h.all++
			if flags == "healthy" {
				h.healthy++
			}
			clusters[name] = h
		}
	}
	return clusters
}

// parseVersion reads the numbers of a version such as 7.0.15 or 1.40.1-dev. It returns nil for any other text.
func parseVersion(text string) []int {
	v := make([]int, 3)
	if _, err := fmt.Sscanf(text, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil {
		return nil
	}
	return v
}

// envoyVersion returns the version in a text such as "<commit>/1.40.0/Clean/RELEASE/BoringSSL", "" for none.
func envoyVersion(text string) (version string, supported bool) {
	_, rest, _ := strings.Cut(text, "/")
	version, _, _ = strings.Cut(rest, "/")
	v := parseVersion(version)
	if v == nil {
		return "", false
	}
	return version, slices.Compare(v, []int{1, 38, 4}) >= 0 && !slices.Equal(v, []int{1, 39, 0})
}

var errNoCounters = errors.New("no counters: Envoy had no request, or `stats_config` leaves them out")

type stats map[string]uint64

// grown returns how much a counter grew until later. A counter that fell began again with another Envoy.
func (s stats) grown(later stats, name string) uint64 {
	if later[name] < s[name] {
		return later[name]
	}
	return later[name] - s[name]
}

// ofCluster are the counters of a cluster that show why calls fail.
var ofCluster = []string{
	"upstream_rq_total", "upstream_rq_retry", "upstream_rq_timeout", "upstream_rq_pending_overflow",
	"upstream_cx_connect_fail", "upstream_cx_connect_timeout", "upstream_cx_http1_total", "upstream_cx_http2_total",
}

func readStats(ctx context.Context, address string) (stats, error) {
	var all struct {
		Stats []struct {
			Name  string
			Value json.RawMessage // a few are texts
		}
	}
	filter := `(^|\.)(ext_authz|ratelimit)\.|\.(` + strings.Join(ofCluster, "|") + `)$`
	err := readJSON(ctx, address, "/stats", "format=json&filter="+url.QueryEscape(filter), &all)
	s := stats{}
	for _, one := range all.Stats {
		if n, err := strconv.ParseUint(string(one.Value), 10, 64); err == nil {
			s[one.Name] = n
		}
	}
	return s, err
}

// failures reports requests of a filter without a decision between two readings.
func (r *Report) failures(filter string, before, after stats) {
	grown, total := stats{}, stats{}
	for name := range after {
		// The HTTP filter ext_authz counts each request for its listener, and again for the cluster of its route.
		words := strings.Split(name, ".")
		if slices.Contains(words, filter) && (filter != "ext_authz" || words[0] != "cluster") {
			grown[words[len(words)-1]] += before.grown(after, name)
			total[words[len(words)-1]] += after[name]
		}
	}
	if len(total) == 0 {
		r.unknown("failures of "+filter, errNoCounters)
		return
	}
	calls := grown["ok"] + grown["denied"] + grown["over_limit"] + grown["error"]
	passed := grown["failure_mode_allowed"]
	refused := max(grown["error"], passed) - passed
	since := fmt.Sprintf("since Envoy started: %d failed, %d passed", total["error"], total["failure_mode_allowed"])
	text := fmt.Sprintf("%s: within %s, %%d of %d requests %%s without a decision", filter, window, calls)
	r.check(passed > 0, "failing-open", fmt.Sprintf(text, passed, "passed"), since)
	r.check(refused > 0, "failing-closed", fmt.Sprintf(text, refused, "were refused"), since)
}

// cluster checks the hosts and the protocol of a cluster that a filter calls, and its retries between two readings.
func (r *Report) cluster(name string, grpc bool, h hosts, before, after stats) {
	prefix := "cluster." + strings.ReplaceAll(name, ":", "_") + "."
	name = "cluster " + suggest.Quoted(name) + ": "
	grown := "within " + window.String() + ":"
	for _, counter := range ofCluster {
		if n := before.grown(after, prefix+counter); n > 0 {
			grown += fmt.Sprintf(" %s +%d", counter, n)
		}
	}
	text := fmt.Sprintf("%s%d of %s healthy", name, h.healthy, suggest.Counted(h.all, "host"))
	r.check(h.healthy < max(1, h.all), "hosts-unhealthy", text, grown)
	if _, ok := after[prefix+"upstream_rq_retry"]; !ok {
		r.unknown(name+"protocol and retries", errNoCounters)
		return
	}
	repeated := before.grown(after, prefix+"upstream_rq_retry")
	r.check(repeated > 0, "retrying", fmt.Sprintf("%sEnvoy repeated %d calls within %s, and %d since it started", name,
		repeated, window, after[prefix+"upstream_rq_retry"]), grown)
	http1, http2 := after[prefix+"upstream_cx_http1_total"], after[prefix+"upstream_cx_http2_total"]
	r.check(grpc && http1 > 0 && http2 == 0, "cluster-http1",
		fmt.Sprintf("%s%d connections over HTTP/2 since Envoy started, %d over HTTP/1.1", name, http2, http1))
}

func loadDump(ctx context.Context, address string, rules Rules) *Configuration {
	at := "--envoy" // the address may have a password
	if u, err := url.Parse(address); err == nil {
		at = u.Scheme + "://" + u.Host
	}
	dump, err := read(ctx, address, "/config_dump", "")
	if err != nil {
		c := &Configuration{Report: Report{At: at, Unread: true}}
		c.find("envoy-unreadable", "cannot read the configuration of Envoy: "+err.Error())
		return c
	}
	c := Check(strictyaml.File{Name: at + "/config_dump", Content: dump}, rules)
	c.At = at
	return c
}
