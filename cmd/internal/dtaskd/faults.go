//go:build faults

package dtaskd

import (
	"os"

	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/test/faults"
)

// instrument installs the fault switches of the test suites (ADR 0029).
func instrument(cfg *coordinator.Config) error { return faults.Install(cfg, os.LookupEnv) }
