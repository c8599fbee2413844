package logstore

import (
	"io"
	"os"
)

// A block of a file that was never written costs more than its own write when it is
// synced: the file system has to write down, in its journal, that there is something in
// it now. That is a third of what a small entry costs where three replicas sync at the
// same time on one disk, and neither a file that was made long nor one whose blocks
// were reserved is spared it. So zeros are written ahead of small entries (ADR-0026).
// They are synced with the entry behind which they are, and mean what was there before:
// nothing.
const (
	// zerosAhead is how many are written at once. More make the one sync that writes
	// them slower.
	zerosAhead = 256 << 10
	// zerosBelow is the size from which a write pays for its blocks itself: it would be
	// written twice for little.
	zerosBelow = 64 << 10
)

// blank is what is written ahead.
var blank [zerosAhead]byte

// writeAhead writes zeros to a place of a file. It is an improvement only: where they
// cannot be written, the write that follows fails, or costs what it would have.
func writeAhead(file io.WriterAt, from, to int64) (end int64) {
	to = min(to, from+zerosAhead)
	if from >= to {
		return from
	}
	n, _ := file.WriteAt(blank[:to-from], from)
	return from + int64(n)
}

// fileSize is the size of a file, 0 if it cannot be known.
func fileSize(file *os.File) int64 {
	info, err := file.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}
