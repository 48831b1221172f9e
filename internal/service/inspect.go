package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// Explain returns why a message of Envoy would pass now or not. It changes nothing.
func (r *requests) Explain(ctx context.Context, m flow.Method, message string) *inspect.Explanation {
	return inspect.Explained(m, r.Flow.Dry(r.authorizer.Dry()).Decide(ctx, m, message), r.live.Limits())
}

// addAnswers adds the debug pages in JSON. Lists of keys have values of clients only with LOG_CLIENT_VALUES.
func (r *requests) addAnswers(mux *http.ServeMux) {
	show := ratelimit.ClientValues(r.Settings.Telemetry.LogClientValues)
	add := func(pattern string, answer func(ctx context.Context, body io.Reader) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, request *http.Request) {
			value, err := answer(request.Context(), http.MaxBytesReader(w, request.Body, rls.MaxJSON))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			w.Header().Set("content-type", "application/json")
			out := json.NewEncoder(settings.HideSecrets(w))
			out.SetIndent("", "  ")
			_ = out.Encode(value) // an error means that the operator has gone
		})
	}
	add("GET /top", func(context.Context, io.Reader) (any, error) { return inspect.NewTop(r.limiter, show), nil })
	add("GET /shadow", func(context.Context, io.Reader) (any, error) { return inspect.NewShadow(r.limiter, show), nil })
	add("POST /explain", func(ctx context.Context, body io.Reader) (any, error) {
		text, err := io.ReadAll(body)
		if err != nil {
			return nil, fmt.Errorf("the request could not be read: %w", err)
		}
		m, message, err := inspect.FromJSON(text)
		if err != nil {
			return nil, err
		}
		return r.Explain(ctx, m, message), nil
	})
	add("POST /buckets", func(ctx context.Context, body io.Reader) (any, error) {
		var q BucketQuery
		d := json.NewDecoder(body)
		d.DisallowUnknownFields()
		if err := d.Decode(&q); err != nil {
			return nil, fmt.Errorf("want a query of buckets in JSON: %w", err)
		}
		return r.Buckets(ctx, q, r.fallback)
	})
}

// Offline decides requests as the service would, without serving.
type Offline struct{ *requests }

// OfflineConfig are the settings of an Offline.
type OfflineConfig struct {
	Config
	// Rules are paths of rule files. Default: those of the settings, with the buckets of their Redis if they name one.
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
		rules.tokens.Close()
		rules.opaque.Close()
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
func (o *Offline) ReadKeys() { o.tokens.Refresh() }

// Active returns the rules by which it decides.
func (o *Offline) Active() *rules.Active { return o.live.Active() }

// Close closes what was opened.
func (o *Offline) Close() {
	o.requests.close()
	o.tokens.Close()
	o.opaque.Close()
	o.stores.close()
}
