package pace

import (
	"testing"
	"time"
)

func TestNoPaceIsTheProducts(t *testing.T) {
	t.Parallel()
	for pace, want := range map[Pace]time.Duration{0: time.Second, 1: time.Second, 2.5: 2500 * time.Millisecond, 60: time.Minute} {
		if got := pace.Of(time.Second); got != want {
			t.Errorf("at pace %v a second is %v, not %v", pace, got, want)
		}
	}
}
