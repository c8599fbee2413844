package worker

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// machineResources returns this machine's cpu, memory, and free disk space at
// dir, which need not exist, in thousandths. Unknown values are omitted.
func machineResources(dir string) map[string]int64 {
	offer := map[string]int64{"cpu": int64(runtime.NumCPU()) * 1000}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		offer["memory"] = thousandths(info.Totalram, uint64(info.Unit))
	}
	for {
		if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && fs.Bsize > 0 {
		offer["disk"] = thousandths(fs.Bavail, uint64(fs.Bsize))
	}
	return offer
}

// thousandths returns count × unit × 1000, at most the largest int64.
func thousandths(count, unit uint64) int64 {
	if unit != 0 && count > math.MaxInt64/1000/unit {
		return math.MaxInt64
	}
	return int64(count * unit * 1000) //nolint:gosec // bounded by the line above
}

// offered returns the machine's resources, overridden by the configured ones.
func offered(c *Config) map[string]int64 {
	offer := machineResources(c.WorkDir)
	maps.Copy(offer, c.Resources)
	return offer
}
