package history

import (
	"errors"
	"io"
	"os"

	"github.com/dtask/dtask/internal/durable"
)

const (
	importBuffer = 1 << 20
	// importQueue is how many buffers may wait for the disk.
	importQueue = 8
)

// importOutput writes a file with a goroutine of its own, which finish ends. Not safe for
// concurrent use.
type importOutput struct {
	file *os.File
	buf  []byte
	todo chan importWrite // to the goroutine; size importQueue; closed by finish
	free chan []byte      // buffers that were written
	done chan error       // size 1: the result of the goroutine
	stop chan struct{}    // closed by the goroutine after an error
}

// importWrite is a buffer that is to be written, or, without one, the length to which the file
// is cut.
type importWrite struct {
	b   []byte
	cut int64
}

func newImportOutput(file *os.File) *importOutput {
	o := &importOutput{
		file: file, todo: make(chan importWrite, importQueue), free: make(chan []byte, importQueue), done: make(chan error, 1), stop: make(chan struct{}),
	}
	go o.run()
	return o
}

func (o *importOutput) run() {
	var begun durable.Writeback
	for w := range o.todo {
		var err error
		if w.b == nil {
			if err = o.file.Truncate(w.cut); err == nil {
				_, err = o.file.Seek(w.cut, io.SeekStart)
			}
			begun.Cut(w.cut)
		} else {
			_, err = o.file.Write(w.b)
			begun.Wrote(o.file, len(w.b))
			select {
			case o.free <- w.b[:0]:
			default:
			}
		}
		if err != nil {
			o.done <- err
			close(o.stop)
			return
		}
	}
	o.done <- o.file.Sync()
}

// errImportOutput is returned after an error, which finish returns.
var errImportOutput = errors.New("writing jobs to import failed")

func (o *importOutput) send(w importWrite) error {
	select {
	case o.todo <- w:
		return nil
	case <-o.stop:
		return errImportOutput
	}
}

// next returns the buffer, to which the caller appends what it writes next.
func (o *importOutput) next() []byte { return o.buf }

// write writes what was appended to the buffer.
func (o *importOutput) write(b []byte) error {
	if o.buf = b; len(o.buf) < importBuffer {
		return nil
	}
	return o.flush()
}

func (o *importOutput) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	if err := o.send(importWrite{b: o.buf}); err != nil {
		return err
	}
	o.buf = o.empty()
	return nil
}

// empty returns an empty buffer.
func (o *importOutput) empty() []byte {
	select {
	case b := <-o.free:
		return b
	default:
		return make([]byte, 0, importBuffer+importBuffer/4)
	}
}

// cut removes what follows a length.
func (o *importOutput) cut(length int64) error {
	if err := o.flush(); err != nil {
		return err
	}
	return o.send(importWrite{cut: length})
}

// finish writes and syncs the rest, and returns the first error. Nothing may follow.
func (o *importOutput) finish() error {
	_ = o.flush() // the goroutine has the error
	close(o.todo)
	return <-o.done
}
