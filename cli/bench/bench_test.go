package bench

import (
	"slices"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/document"
)

func TestShapesSetTheDependenciesOfTasks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		shape Shape
		width int
		want  [][]uint32
	}{
		{Independent, 2, [][]uint32{nil, nil, nil, nil, nil}},
		{Chain, 2, [][]uint32{nil, {0}, {1}, {2}, {3}}},
		{Wide, 2, [][]uint32{nil, nil, {0, 1}, {0, 1}, {2, 3}}},
		{Wide, 3, [][]uint32{nil, nil, nil, {0, 1}, {1, 2}, {1, 2}, {3, 4}}},
		{Wide, 1, [][]uint32{nil, {0}, {1}}},
	} {
		for i, want := range tt.want {
			if got := tt.shape.Dependencies(i, tt.width); !slices.Equal(got, want) {
				t.Errorf("%s, width %d, task %d: got %v, want %v", tt.shape, tt.width, i, got, want)
			}
		}
	}
}

func TestDistributionsUseTheNearestRank(t *testing.T) {
	t.Parallel()
	var samples []time.Duration
	for i := range 200 {
		samples = append(samples, time.Duration(200-i)*time.Millisecond)
	}
	if got := distribution(samples); *got != (document.Distribution{P50: 100, P99: 198, Max: 200}) {
		t.Errorf("got %+v", got)
	}
	if got := distribution([]time.Duration{time.Millisecond}); *got != (document.Distribution{P50: 1, P99: 1, Max: 1}) {
		t.Errorf("one sample: got %+v", got)
	}
	if got := distribution(nil); got != nil {
		t.Errorf("no samples: got %+v", got)
	}
}
