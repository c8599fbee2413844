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

// storeName is the file with term and vote, and with the log where it is not in
// segments.
const storeName = "raft.db"

// LogFiles is the pattern of the files that a coordinator's log is in, whichever
// store it has: raft.db, and segments with an index for a name.
const LogFiles = "[r0]*.[dw]*"

// LogFile is the file of a data directory to which the log is appended.
func LogFile(dataDir string) (string, error) {
	segments, err := filepath.Glob(filepath.Join(dataDir, "wal", "*.wal"))
	if err != nil {
		return "", fmt.Errorf("looking for segments: %w", err)
	}
	for _, segment := range slices.Backward(segments) { // their names are in order
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

// UsedBit is some bit of what was written to a file: a segment is made with zeros.
func UsedBit(path string, random *rand.Rand) (int64, error) {
	used, err := usedBytes(path)
	if err != nil || used == 0 {
		return 0, err
	}
	return random.Int64N(8 * int64(used)), nil
}

// rootPages is where the pages of raft.db begin that hold data, behind its two roots.
const rootPages = 8192

// TearLog tears the last write of a coordinator's log, which was synced: so does a
// disk that lied. A write of a segment is often smaller than a sector, so that its
// end goes.
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
		return fmt.Errorf("tearing a log: %w", err)
	}
	gone := 1 + random.IntN(min(used, 100))
	_, err = file.WriteAt(make([]byte, gone), int64(used-gone))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("tearing a log: %w", err)
	}
	return nil
}

func usedBytes(path string) (int, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("looking at a log: %w", err)
	}
	return len(bytes.TrimRight(content, "\x00")), nil
}
