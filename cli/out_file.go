package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"github.com/dtask/dtask/internal/durable"
)

// partialFile begins the temporary names of files that are being written.
const partialFile = ".dtaskctl-"

// An outFile is a file that a command writes, by default that of its flag --out. Only the
// user can read it. It gets its name when it is complete, and whether it can be written is
// known before its content is made.
type outFile struct {
	path    string
	what    string // for errors; empty: --out
	replace bool   // the file may exist
	file    *durable.File
}

// open creates the file under a temporary name, unless the path is empty. The caller calls
// discard.
func (f *outFile) open(a *app) (err error) {
	if f.path == "" {
		return nil
	}
	f.path = a.created(f.path)
	if _, err := os.Lstat(f.path); err == nil && !f.replace {
		return usagef("%s exists: choose another file, or remove it", f.name())
	}
	f.file, err = durable.CreateFile(f.path, partialFile)
	return f.failed(err)
}

// keep writes the content and gives the file its name. It is called once, after open.
func (f *outFile) keep(write func(io.Writer) error) error {
	err := write(f.file)
	if err == nil {
		err = f.file.Keep()
	}
	return f.failed(err)
}

// discard removes the temporary file unless it was kept.
func (f *outFile) discard() {
	if f.file != nil {
		f.file.Discard()
	}
}

func (f *outFile) name() string { return cmp.Or(f.what, "--out") + " " + f.path }

// failed adds to an error which file could not be written.
func (f *outFile) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("writing %s: %w", f.name(), durable.Cause(err))
}
