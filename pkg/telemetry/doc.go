// Package telemetry shows operators what the service does: metrics for Prometheus.
package telemetry
