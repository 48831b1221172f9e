package service

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/extauthz/extauthz/internal/certs"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules/xds"
)

// configXDS is the CONFIG_TYPE of rules from an xDS server.
const configXDS = "GRPC_XDS_SOTW"

// newXDSClient returns the client of the xDS server that the settings name.
func (s *Settings) newXDSClient(certificates *certificates, log *slog.Logger) (*xds.Client, error) {
	headers, err := parseHeaders(s.XDSHeaders)
	if err != nil {
		return nil, err
	}
	cfg := xds.Config{
		Server: s.XDSServer, Node: xds.Node{ID: s.XDSNodeID, Metadata: s.XDSNodeMetadata}, Headers: headers,
		ConnectInterval: s.XDSConnect, MaxMessage: s.XDSMaxMessage,
		Backoff: xds.Backoff{Initial: s.XDSBackoff, Max: max(s.XDSBackoff, s.XDSMaxBackoff)},
		Overlay: s.XDSOverlay, RequireEnd: s.RequireEnd, NoWait: s.ForceStart, Log: log,
		Check: ratelimit.CheckOptions{
			DefaultAlgorithm: s.DefaultAlgorithm, MergeDomains: s.MergeDomains, Strict: s.strict(),
		},
	}
	if s.XDSJitter {
		cfg.Backoff.Jitter = s.XDSRandomFactor
	}
	if s.XDSTLS {
		files, err := certificates.client("xds", certs.ClientFiles{
			CA: s.XDSCACert, Cert: s.XDSCert, Key: s.XDSKey, ServerName: s.XDSSAN,
		})
		if err != nil {
			return nil, fmt.Errorf("CONFIG_GRPC_XDS_SERVER_TLS_CACERT, CONFIG_GRPC_XDS_CLIENT_TLS_CERT and "+
				"CONFIG_GRPC_XDS_CLIENT_TLS_KEY: %w", err)
		}
		cfg.TLS = files.Config
	} else if host, _, _ := net.SplitHostPort(s.XDSServer); !isLoopback(host) && !strings.HasPrefix(s.XDSServer, "unix:") {
		log.Warn("the connection to the xDS server has no TLS: who can change it can set every limit; set " +
			"CONFIG_GRPC_XDS_SERVER_USE_TLS=true")
	}
	client, err := xds.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("CONFIG_GRPC_XDS_SERVER_URL: %w (want host:port)", err)
	}
	return client, nil
}

// isTarget reports whether a text is host:port, or a target of gRPC with its scheme, such as unix:/path or
// dns:///host:port.
func isTarget(text string) bool {
	for _, scheme := range []string{"unix:", "unix-abstract:", "dns:", "passthrough:", "ipv4:", "ipv6:"} {
		if strings.HasPrefix(text, scheme) {
			return true
		}
	}
	host, port, err := net.SplitHostPort(text)
	number, err2 := strconv.ParseUint(port, 10, 16)
	return err == nil && err2 == nil && host != "" && number != 0
}

// parseHeaders reads name:value pairs with commas, as envoyproxy/ratelimit does. Its error does not show the text,
// which may have a secret.
func parseHeaders(text string) (map[string]string, error) {
	headers := map[string]string{}
	if text == "" {
		return headers, nil
	}
	for i, pair := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(pair, ":")
		name = strings.ToLower(strings.TrimSpace(name))
		if !ok || !httpguts.ValidHeaderFieldName(name) || strings.HasPrefix(name, "grpc-") {
			return nil, fmt.Errorf("pair %d has no valid name: want name:value pairs with commas, such as x-team:shop,x-zone:a",
				i+1)
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, fmt.Errorf("the value of %q has characters that are not printable ASCII", name)
		}
		if _, known := headers[name]; known {
			return nil, fmt.Errorf("%q is there twice", name)
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, nil
}

// ineffectiveXDS returns a warning for each setting of the xDS server that has no effect.
func (s *Settings) ineffectiveXDS() (warnings []string) {
	for _, name := range settingNames() {
		isXDS := strings.HasPrefix(name, "CONFIG_GRPC_XDS_") || strings.HasPrefix(name, "XDS_CLIENT_")
		switch {
		case !isXDS || s.environment[name] == "":
		case s.ConfigType != configXDS:
			warnings = append(warnings, name+" has no effect without CONFIG_TYPE="+configXDS)
		case !s.XDSTLS && strings.Contains(name, "_TLS_"):
			warnings = append(warnings, name+" has no effect without CONFIG_GRPC_XDS_SERVER_USE_TLS=true")
		}
	}
	return warnings
}
