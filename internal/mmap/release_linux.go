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

// Release takes all pages of the file at path that this process has mapped read-only out
// of its memory. They stay in the system's cache, and the next look at one of them
// brings it back without the disk. The caller sees to it that no mapping of the file is
// made, moved or removed meanwhile; others may read through them.
// Elsewhere than on Linux it does nothing.
func Release(path string) error {
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		return fmt.Errorf("looking for the mapped file %s: %w", path, err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("looking for the mapping of %s: %w", path, err)
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

// mappingOf reads a line of /proc/self/maps, if it is of a shared read-only mapping of a file:
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
