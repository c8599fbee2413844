package timescale

import (
	"testing"
	"time"
)

func TestAFactorScalesDurations(t *testing.T) {
	t.Parallel()
	for factor, want := range map[Factor]time.Duration{0: time.Second, 1: time.Second, 2.5: 2500 * time.Millisecond, 60: time.Minute} {
		if got := factor.Scale(time.Second); got != want {
			t.Errorf("factor %v scales a second to %v, want %v", factor, got, want)
		}
	}
}
