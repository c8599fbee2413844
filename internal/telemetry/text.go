package telemetry

import (
	"errors"
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// WriteMetrics writes the metrics of a registry to w, in the text format of Prometheus. A
// broken collector doesn't hide the others, and is part of the error.
func WriteMetrics(w io.Writer, registry prometheus.Gatherer) error {
	families, err := registry.Gather()
	for _, f := range families {
		if _, failed := expfmt.MetricFamilyToText(w, f); failed != nil {
			return fmt.Errorf("writing metrics: %w", errors.Join(err, failed))
		}
	}
	if err != nil {
		return fmt.Errorf("gathering metrics: %w", err)
	}
	return nil
}
