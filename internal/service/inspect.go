package service

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// Explain returns why a message of Envoy would pass now or not. It changes nothing.
func (r *requests) Explain(ctx context.Context, m flow.Method, message string) *inspect.Explanation {
	return inspect.Explain(ctx, r.Flow.Dry(r.check.authorizer.Dry()), r.live.Limits(), m, message)
}

// serveExplain serves /explain on the debug listener: a request of Envoy in JSON.
func (r *requests) serveExplain(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, rls.MaxJSON))
	if err != nil {
		http.Error(w, "the request could not be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	m, message, err := inspect.FromJSON(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, r.Explain(request.Context(), m, message))
}

// serveBuckets serves /buckets on the debug listener: a BucketQuery in JSON.
func (r *requests) serveBuckets(w http.ResponseWriter, request *http.Request) {
	var q BucketQuery
	d := json.NewDecoder(http.MaxBytesReader(w, request.Body, rls.MaxJSON))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		http.Error(w, "want a query of buckets in JSON: "+err.Error(), http.StatusBadRequest)
		return
	}
	shown, err := r.Buckets(request.Context(), q, r.fallback)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, shown)
}

// Offline decides requests as the service would, without serving.
type Offline struct{ *requests }

// OfflineConfig are the settings of an Offline.
type OfflineConfig struct {
	Config
	// Rules are paths of rule files. None means those that the settings name; the buckets are then those of Redis, if the
	// settings name one.
	Rules []string
	Stdin io.Reader
}

// OpenOffline opens all that decides requests. The caller must close it.
func OpenOffline(ctx context.Context, cfg OfflineConfig) (*Offline, error) {
	s := *cfg.Settings
	s.Memory.SnapshotPath, s.Telemetry.Tracing = "", false         // both belong to a running service
	s.Redis.FallbackReplicas = cmp.Or(s.Redis.FallbackReplicas, 1) // a command is no replica
	s.Redis.Main.Timeout, s.Redis.PerSecond.Timeout = commandPatience, commandPatience
	cfg.Settings = &s
	base, err := newProcess(cfg.Config)
	if err != nil {
		return nil, err
	}
	base.log = slog.New(slog.DiscardHandler) // the command prints its error
	loaded := &loadedRules{kind: "directory", name: strings.Join(cfg.Rules, ", ")}
	if len(cfg.Rules) == 0 {
		loaded, err = loadRules(ctx, &s, base.files, base.log)
	} else {
		s.Limits.Backend = "memory"
		loaded.first, loaded.problems = file.Check(cfg.Rules, cfg.Stdin, RuleConfig(&s))
		err = loaded.problems.Err()
	}
	if err != nil {
		return nil, err
	}
	loaded.offline = true
	stores, err := openStores(ctx, base)
	if err != nil {
		return nil, err
	}
	var rules *activeRules
	if stores.redis != nil {
		err = stores.redis.Ping(ctx)
	}
	if err == nil {
		rules, err = openRules(ctx, stores, loaded)
	}
	if err != nil {
		stores.close()
		return nil, err
	}
	r, err := openRequests(ctx, rules)
	if err != nil {
		rules.check.tokens.Close()
		stores.close()
		return nil, err
	}
	return &Offline{r}, nil
}

// SetKeys sets API keys beside those that are configured, by their texts.
func (o *Offline) SetKeys(keys map[string]apikey.Record) {
	var records []apikey.Record
	for text, r := range keys {
		r.Hash, r.Weak = o.keys.secret.Hash(text), true
		records = append(records, r)
	}
	o.keys.demo.Replace(records)
}

// ReadKeys reads the keys of issuers again, as a service does from time to time. A virtual clock that leaps needs it.
func (o *Offline) ReadKeys() { o.check.tokens.Refresh() }

// Active returns the rules by which it decides.
func (o *Offline) Active() *rules.Active { return o.live.Active() }

// Close closes what was opened.
func (o *Offline) Close() {
	o.requests.close()
	o.check.tokens.Close()
	o.stores.close()
}
