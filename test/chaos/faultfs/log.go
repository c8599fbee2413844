package faultfs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// storeName is the file with term and vote, and with the log if the store is bbolt.
const storeName = "raft.db"

// LogFiles is the pattern of the files with a coordinator's log, for both stores:
// raft.db, and segments, which have an index in their name.
const LogFiles = "[r0]*.[dw]*"

// LogFile returns the file of a data directory to which log entries are appended.
func LogFile(dataDir string) (string, error) {
	segments, err := filepath.Glob(filepath.Join(dataDir, "wal", "*.wal"))
	if err != nil {
		return "", fmt.Errorf("listing segments: %w", err)
	}
	for _, segment := range slices.Backward(segments) { // ascending names
		used, err := usedBytes(segment)
		if err != nil {
			return "", err
		}
		if used > 0 {
			return segment, nil
		}
	}
	return filepath.Join(dataDir, storeName), nil
}

// UsedBit returns a random bit of the written part of a file: new segments are
// filled with zeros.
func UsedBit(path string, random *rand.Rand) (int64, error) {
	used, err := usedBytes(path)
	if err != nil || used == 0 {
		return 0, err
	}
	return random.Int64N(8 * int64(used)), nil
}

// rootPages is the offset of the first data page of raft.db, after its two root
// pages.
const rootPages = 8192

// TearLog tears the last write to a coordinator's log, although it was synced, like
// a disk that lies. A write to a segment is often smaller than a sector, so that its
// end is lost.
func (d *Disk) TearLog(dataDir string, random *rand.Rand) error {
	path, err := LogFile(dataDir)
	if err != nil {
		return err
	}
	if filepath.Base(path) == storeName {
		onDisk, err := filepath.Rel(d.Dir, path)
		if err == nil {
			_, err = d.TearLast(onDisk, rootPages, random.Uint64())
		}
		return err
	}
	used, err := usedBytes(path)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("tearing log: %w", err)
	}
	gone := 1 + random.IntN(min(used, 100))
	_, err = file.WriteAt(make([]byte, gone), int64(used-gone))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("tearing log: %w", err)
	}
	return nil
}

func usedBytes(path string) (int, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading log: %w", err)
	}
	return len(bytes.TrimRight(content, "\x00")), nil
}
