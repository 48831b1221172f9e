package service

import (
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/extauthz/extauthz/internal/certs"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/rules/xds"
)

// newXDSClient returns the client of the xDS server that the settings name.
func newXDSClient(s *settings.Settings, certificates *certificates, log *slog.Logger) (*xds.Client, error) {
	headers, err := settings.ParseHeaders(s.XDS.Headers)
	if err != nil {
		return nil, err
	}
	cfg := xds.Config{
		Server: s.XDS.Server, Node: xds.Node{ID: s.XDS.NodeID, Metadata: s.XDS.NodeMetadata}, Headers: headers,
		ConnectInterval: s.XDS.ConnectInterval, MaxMessage: s.XDS.MaxMessage,
		Backoff: xds.Backoff{Initial: s.XDS.Backoff, Max: max(s.XDS.Backoff, s.XDS.MaxBackoff)},
		Overlay: s.XDS.Overlay, RequireEnd: s.Rules.RequireEnd, NoWait: s.Rules.ForceStart, Log: log,
		Check: checkOptions(s),
	}
	if s.XDS.Jitter {
		cfg.Backoff.Jitter = s.XDS.RandomFactor
	}
	if s.XDS.UseTLS {
		files, err := certificates.client("xds", certs.ClientFiles{
			CA: s.XDS.CACert, Cert: s.XDS.Cert, Key: s.XDS.Key, ServerName: s.XDS.SAN,
		})
		if err != nil {
			return nil, fmt.Errorf("CONFIG_GRPC_XDS_SERVER_TLS_CACERT, CONFIG_GRPC_XDS_CLIENT_TLS_CERT and "+
				"CONFIG_GRPC_XDS_CLIENT_TLS_KEY: %w", err)
		}
		cfg.TLS = files.Config
	} else if host, _, _ := net.SplitHostPort(s.XDS.Server); !settings.IsLoopback(host) && !strings.HasPrefix(s.XDS.Server,
		"unix:") {
		log.Warn("the connection to the xDS server has no TLS: who can change it can set every limit; set " +
			"CONFIG_GRPC_XDS_SERVER_USE_TLS=true")
	}
	client, err := xds.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("CONFIG_GRPC_XDS_SERVER_URL: %w (want host:port)", err)
	}
	return client, nil
}
