package testenv

import "strings"

// peerPort returns the port for other servers: that of TLS if there is one.
func (r *RedisServer) peerPort() string {
	if port := r.Option("--tls-port"); port != "" {
		return port
	}
	_, port := r.hostPort()
	return port
}

// tlsOptions returns the options about TLS of a command line, but not the port.
func tlsOptions(args []string) (options []string) {
	for i := 0; i+1 < len(args); i += 2 {
		if strings.HasPrefix(args[i], "--tls-") && args[i] != "--tls-port" {
			options = append(options, args[i], args[i+1])
		}
	}
	return options
}
