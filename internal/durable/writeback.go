package durable

import (
	"io"
	"os"
)

// writebackStep is after how many bytes of a large file the system begins to write them to
// the disk.
const writebackStep = 8 << 20

// pageBytes is a multiple of the size of a page: a page that is not full will be written again.
const pageBytes = 64 << 10

// Writeback makes the system write a large file to the disk while the rest of it is still
// coming, so that the Sync at its end, which is still needed, finds little to write, and the
// syncs of other files meanwhile do not wait for all of it. It waits for nothing and makes
// nothing durable. The zero value begins at the start of a file. Not safe for concurrent use.
type Writeback struct{ at, begun int64 }

// Wrote reports that n more bytes were written to the end of a file.
func (w *Writeback) Wrote(file *os.File, n int) {
	w.at += int64(n)
	if whole := w.at - w.at%pageBytes; whole-w.begun >= writebackStep {
		beginWriteback(file, w.begun, whole-w.begun)
		w.begun = whole
	}
}

// Cut reports that the file was cut to a length.
func (w *Writeback) Cut(length int64) { w.at, w.begun = length, min(w.begun, length) }

// WritebackWriter is a writer whose bytes reach the end of a file, which it begins to write
// to the disk.
type WritebackWriter struct {
	io.Writer

	File *os.File

	begun Writeback
}

// Write implements io.Writer.
func (w *WritebackWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.begun.Wrote(w.File, n)
	return n, err
}

// Close closes the file, and not the writer.
func (w *WritebackWriter) Close() error { return w.File.Close() }
