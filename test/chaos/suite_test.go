package chaos

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster/clustertest"
)

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m)) }

// seedOf is the seed of a test, which is printed with the line that repeats it.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv("DTASK_CHAOS_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("DTASK_CHAOS_SEED: %v", err)
		}
	}
	t.Logf("replay: DTASK_CHAOS_SEED=%d go test -count=1 -v -run '^%s$' ./test/chaos", seed, t.Name())
	return seed
}

// untilOf is until when a test goes on: a share of DTASK_CHAOS_MINUTES from now.
// Without it that is now: a test does what it must do at least.
func untilOf(t *testing.T, share float64) time.Time {
	t.Helper()
	given := os.Getenv("DTASK_CHAOS_MINUTES")
	if given == "" {
		return time.Now()
	}
	minutes, err := strconv.ParseFloat(given, 64)
	if err != nil {
		t.Fatalf("DTASK_CHAOS_MINUTES: %v", err)
	}
	return time.Now().Add(time.Duration(minutes * share * float64(time.Minute)))
}
