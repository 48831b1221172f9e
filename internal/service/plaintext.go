package service

import "github.com/prometheus/client_golang/prometheus"

// RegisterPlaintext registers the metric of the listeners without TLS, by name: whether other machines can reach each.
func RegisterPlaintext(r prometheus.Registerer, listeners map[string]bool) {
	reachable := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "extauthz_plaintext_listener", Help: "1 for a listener without TLS that other machines can reach.",
	}, []string{"listener"})
	r.MustRegister(reachable)
	for name, is := range listeners {
		reachable.WithLabelValues(name).Set(number(is))
	}
}
