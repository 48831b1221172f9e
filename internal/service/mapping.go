package service

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// metricMapping reads PROMETHEUS_MAPPER_YAML. Envoy Gateway names a file there that need not exist, so a missing file
// only causes a warning.
func metricMapping(s *settings.Settings, log *slog.Logger) (*telemetry.Mapping, error) {
	standard := telemetry.DefaultMapping()
	if s.Telemetry.MetricMapping == "" {
		if s.Telemetry.Milliseconds {
			standard = standard.WithoutScale()
		}
		return standard, nil
	}
	text, err := os.ReadFile(s.Telemetry.MetricMapping)
	if errors.Is(err, fs.ErrNotExist) {
		log.Warn("the file of PROMETHEUS_MAPPER_YAML does not exist; metrics have the names of the default mapping")
		return standard, nil
	}
	if err != nil {
		return nil, fmt.Errorf("PROMETHEUS_MAPPER_YAML: cannot read the file: %w", reason(err))
	}
	mapping, err := telemetry.ParseMapping(text)
	if err != nil {
		return nil, fmt.Errorf("PROMETHEUS_MAPPER_YAML: the file has mistakes; "+
			"fix them, or unset it for the default names:\n%w", err)
	}
	return mapping, nil
}
