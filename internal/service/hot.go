package service

import (
	"encoding/json"
	"net/http"

	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// addHot adds the pages /top and /shadow. They have values of clients only with LOG_CLIENT_VALUES.
func (r *requests) addHot(mux *http.ServeMux) {
	show := ratelimit.ClientValues(r.Settings.Telemetry.LogClientValues)
	mux.HandleFunc("GET /top", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, inspect.NewTop(r.limiter, show))
	})
	mux.HandleFunc("GET /shadow", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, inspect.NewShadow(r.limiter, show))
	})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("content-type", "application/json")
	out := json.NewEncoder(settings.HideSecrets(w))
	out.SetIndent("", "  ")
	_ = out.Encode(v) // an error means that the operator has gone
}
