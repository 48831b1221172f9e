package service

import (
	"log/slog"
	"time"

	"github.com/extauthz/extauthz/internal/certs"
)

// certificates are those in files, by their names in metrics. Each connection reads them again, and logs changes.
type certificates struct {
	log     *slog.Logger
	clients map[string]*certs.Client
	files   map[string]certificateFiles
}

// certificateFiles are a certs.Pair or certs.Authorities.
type certificateFiles interface {
	// Err returns why the files are not in use; nil if they are.
	Err() error
	// NotAfter is when the certificates in use end.
	NotAfter() time.Time
}

// certificateSettings has the setting of each certificate, by its name in metrics.
var certificateSettings = map[string]string{
	"grpc_server":    "GRPC_SERVER_TLS_CERT",
	"grpc_client_ca": "GRPC_CLIENT_TLS_CACERT",
	"redis_client":   "REDIS_TLS_CLIENT_CERT",
	"redis_ca":       "REDIS_TLS_CACERT",
	"xds_client":     "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
	"xds_ca":         "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
}

func newCertificates(log *slog.Logger) *certificates {
	return &certificates{log, map[string]*certs.Client{}, map[string]certificateFiles{}}
}

// client reads the files of connections to a server: redis or xds. All servers of one name have the same files.
func (c *certificates) client(server string, f certs.ClientFiles) (*certs.Client, error) {
	if known := c.clients[server]; known != nil {
		return known, nil
	}
	pair, authorities := server+"_client", server+"_ca"
	f.PairChanged, f.CAChanged = c.report(pair), c.report(authorities)
	client, err := certs.NewClient(f)
	if err != nil {
		return nil, err
	}
	c.clients[server] = client
	if client.Pair != nil {
		c.files[pair] = client.Pair
	}
	if client.Authorities != nil {
		c.files[authorities] = client.Authorities
	}
	return client, nil
}

// report returns a function that logs a change of files.
func (c *certificates) report(name string) func(error) {
	setting := certificateSettings[name]
	return func(err error) {
		if err != nil {
			c.log.Error("certificates in changed files cannot be used; the previous ones stay in use", "setting", setting,
				"error", err)
			return
		}
		c.log.Info("certificates were read again", "setting", setting)
	}
}

func (c *certificates) collect(to samples) {
	usable := to.gauge("certificate_last_reload_successful",
		"0 while the files of a certificate cannot be used and the previous one stays in use.", "certificate")
	expiry := to.gauge("certificate_expiry_timestamp_seconds",
		"Time at which a certificate of the service expires; of a file with several authorities, the last.", "certificate")
	for name, files := range c.files {
		usable(number(files.Err() == nil), name)
		expiry(float64(files.NotAfter().Unix()), name)
	}
}
