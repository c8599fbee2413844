package raftnode

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// reapSnapshots removes what a crash left of snapshots that were being written,
// and of old ones that were being removed: of these raft would never know again,
// and they would fill the disk. Nothing is removed because it cannot be read: what
// lacks a file goes only if there are as many whole ones newer than it as are
// kept, which is when raft had begun to remove it.
func reapSnapshots(dir string) (reaped int, err error) {
	folder := filepath.Join(dir, snapshotsDir)
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("listing snapshots: %w", err)
	}
	var gone, finished []string
	for _, e := range entries {
		switch {
		case !e.IsDir():
		case strings.HasSuffix(e.Name(), tmpSuffix):
			gone = append(gone, e.Name())
		default:
			finished = append(finished, e.Name())
		}
	}
	slices.SortFunc(finished, func(a, b string) int { return compareSnapshots(b, a) })
	whole := 0
	for _, name := range finished {
		switch {
		case isWhole(filepath.Join(folder, name)):
			whole++
		case whole >= snapshotRetain:
			gone = append(gone, name)
		}
	}
	for _, name := range gone {
		if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
			return reaped, fmt.Errorf("removing the rest of a snapshot: %w", err)
		}
		reaped++
	}
	return reaped, nil
}

// compareSnapshots orders names of snapshots, TERM-INDEX-TIME, by age.
func compareSnapshots(a, b string) int {
	var x, y [3]uint64
	_, _ = fmt.Sscanf(a, "%d-%d-%d", &x[0], &x[1], &x[2]) // a foreign name is the oldest
	_, _ = fmt.Sscanf(b, "%d-%d-%d", &y[0], &y[1], &y[2]) // same
	return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]), cmp.Compare(x[2], y[2]), cmp.Compare(a, b))
}

// isWhole reports whether a snapshot has its files, readable or not.
func isWhole(path string) bool {
	for _, name := range []string{"meta.json", stateName} {
		if _, err := os.Stat(filepath.Join(path, name)); errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}
