package raftnode

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// diskSpace is the default of Config.MeasureSpace.
func diskSpace(dir string) (free, size uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("measuring free space of %s: %w", dir, err)
	}
	block := uint64(s.Bsize) //nolint:gosec // a size is positive
	return s.Bavail * block, s.Blocks * block, nil
}
