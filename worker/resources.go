package worker

import (
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/dtask/dtask/worker/gpu"
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

// offer sets what the worker offers: the machine's resources with its GPUs, overridden by the
// configured ones. GPUs of Config.Resources are a number only: no attempt gets an index.
func (w *Worker) offer(ctx context.Context) {
	w.resources = machineResources(w.cfg.WorkDir)
	if _, counted := w.cfg.Resources[gpu.Resource]; !counted {
		found, err := gpu.Find(ctx, w.cfg.GPUs)
		if err != nil {
			w.log.WarnContext(ctx, "this worker offers no GPUs, because they can't be listed; name them with --gpus", "err", err)
		}
		w.devices = found
	}
	w.gpus = gpu.NewPool(w.devices)
	if amount := w.devices.Amount(); amount > 0 {
		w.resources[gpu.Resource] = amount
	}
	maps.Copy(w.resources, w.cfg.Resources)
}
