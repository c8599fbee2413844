package logstore

import (
	"io"
)

// Syncing a block of a file that was never written costs more than the write itself:
// the file system must record in its journal that the block now has content. That is a
// third of the cost of a small entry if three replicas sync concurrently on one disk,
// and neither extending the file nor reserving its blocks avoids it. So zeros are
// written ahead of small entries (ADR-0026). They are synced with the entry before
// them, and mean the same as the space after the end of the file: no entry.
const (
	// prezeroSize is how many zeros are written at once. More delay the sync that
	// writes them.
	prezeroSize = 256 << 10
	// maxPrezeroedBatch is the size from which no zeros are written ahead: the batch
	// would be written twice for little benefit.
	maxPrezeroedBatch = 64 << 10
)

var zeroBlock [prezeroSize]byte

// prezero writes zeros to a range of a file and returns where they end. It is an
// optimization: if they cannot be written, the write that follows fails, or costs more.
func prezero(file io.WriterAt, from, to int64) (end int64) {
	to = min(to, from+prezeroSize)
	if from >= to {
		return from
	}
	n, _ := file.WriteAt(zeroBlock[:to-from], from)
	return from + int64(n)
}
