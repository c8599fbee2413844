package telemetry

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestMetricsCanBeWrittenWithoutAServer(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := WriteMetrics(&out, NewRegistry("v1.2.3")); err != nil || !strings.Contains(out.String(), `dtask_build_info{`) {
		t.Errorf("got %v, %s", err, &out)
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestMetricsThatCannotBeWrittenAreAnError(t *testing.T) {
	t.Parallel()
	if err := WriteMetrics(brokenWriter{}, NewRegistry("v1.2.3")); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}
