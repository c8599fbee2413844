package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A File is a file that gets its name when it is complete: until then, what had that name
// stays. It implements io.ReadWriteSeeker. Its errors may name the temporary file; Cause
// returns them without it. Not safe for concurrent use.
type File struct {
	// Scratch is set for a file that is only read back and then discarded: the system need not
	// begin to write it to the disk.
	Scratch bool

	path  string
	temp  *os.File // nil after Keep has closed it
	begun Writeback
}

// CreateFile begins a file under a temporary name in the directory of path, with mode 0600.
// The temporary name begins with prefix. The caller calls Discard.
func CreateFile(path, prefix string) (*File, error) {
	temp, err := os.CreateTemp(filepath.Dir(path), prefix+"*")
	if err != nil {
		return nil, err
	}
	return &File{path: path, temp: temp}, nil
}

// Path returns the name that the file gets.
func (f *File) Path() string { return f.path }

// Read implements io.Reader.
func (f *File) Read(b []byte) (int, error) { return f.temp.Read(b) }

// Write implements io.Writer. It appends: nothing is written after a Seek.
func (f *File) Write(b []byte) (int, error) {
	n, err := f.temp.Write(b)
	if !f.Scratch {
		f.begun.Wrote(f.temp, n)
	}
	return n, err
}

// Seek implements io.Seeker.
func (f *File) Seek(offset int64, whence int) (int64, error) { return f.temp.Seek(offset, whence) }

// Restart empties the file: another attempt begins.
func (f *File) Restart() error {
	_, err := f.temp.Seek(0, io.SeekStart)
	if err == nil {
		err = f.temp.Truncate(0)
	}
	f.begun.Cut(0)
	return err
}

// Sync makes what was written durable, still under the temporary name.
func (f *File) Sync() error { return f.temp.Sync() }

// Keep gives the file its name, and replaces what had it. Both are durable when it returns.
// Nothing may be written afterwards.
func (f *File) Keep() error {
	err := errors.Join(f.temp.Sync(), f.temp.Close())
	if err == nil {
		err = os.Rename(f.temp.Name(), f.path)
	}
	if err != nil {
		return err
	}
	f.temp = nil
	return SyncDir(filepath.Dir(f.path))
}

// Discard removes the temporary file unless it was kept.
func (f *File) Discard() {
	if f.temp != nil {
		_ = errors.Join(f.temp.Close(), os.Remove(f.temp.Name())) // nothing is lost
	}
}

// Cause removes the path of a temporary file from an error.
func Cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return l.Err
	}
	return err
}
