package alerts

import (
	"os"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster/clustertest"
)

// Environment variables of the suite of whole processes.
const (
	suiteVariable   = "DTASK_ALERTS"      // 1: run it
	programVariable = "DTASK_PROMETHEUS"  // directory of prometheus and promtool; default: PATH
	soakVariable    = "DTASK_ALERTS_SOAK" // duration of the soak; default defaultSoak
	runbookVariable = "DTASK_RUNBOOKS"    // 1: run the commands of the runbooks
)

const defaultSoak = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(suiteVariable) == "" && os.Getenv(runbookVariable) == "" {
		os.Exit(m.Run()) // no test needs the programs
	}
	os.Exit(clustertest.Main(m))
}

// needsSuite skips a test unless the suite runs.
func needsSuite(t *testing.T) {
	t.Helper()
	if os.Getenv(suiteVariable) == "" {
		t.Skip("make alerts runs this")
	}
}
