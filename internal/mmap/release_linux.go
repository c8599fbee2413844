package mmap

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Release removes all pages of the file at path that this process has mapped read-only
// from its resident memory. They stay in the system's cache, so the next read of one
// needs no disk. The caller must ensure that no mapping of the file is created, moved
// or removed meanwhile; others may read through them. It does nothing on systems other
// than Linux.
func Release(path string) error {
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		return fmt.Errorf("inspecting mapped file %s: %w", path, err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("reading the mappings of %s: %w", path, err)
	}
	var errs []error
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		from, to, ok := mappingOf(lines.Bytes(), file.Dev, file.Ino)
		if !ok {
			continue
		}
		if _, _, err := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); err != 0 {
			errs = append(errs, fmt.Errorf("releasing the mapping of %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// mappingOf parses a line of /proc/self/maps, if it is a shared read-only mapping of a
// file:
//
//	7f0c4c000000-7f0c50000000 r--s 00000000 fe:00 1234   /data/raft.db
func mappingOf(line []byte, dev, inode uint64) (from, to uintptr, ok bool) {
	fields := bytes.Fields(line)
	if len(fields) < 5 || string(fields[1]) != "r--s" || string(fields[4]) != strconv.FormatUint(inode, 10) ||
		string(fields[3]) != fmt.Sprintf("%02x:%02x", unix.Major(dev), unix.Minor(dev)) {
		return 0, 0, false
	}
	low, high, _ := bytes.Cut(fields[0], []byte{'-'})
	first, err := strconv.ParseUint(string(low), 16, strconv.IntSize)
	if err != nil {
		return 0, 0, false
	}
	end, err := strconv.ParseUint(string(high), 16, strconv.IntSize)
	return uintptr(first), uintptr(end), err == nil && end > first
}
