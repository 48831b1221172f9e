// Package telemetry shows operators what the service does: metrics for Prometheus and statsd, and the log of decisions.
package telemetry
