package simulation_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// copyDirectory copies the process's data directory for the next process. All
// goroutines of the bubble but the caller's wait, so the copy is of one moment.
func (p *process) copyDirectory() {
	p.r.lives++
	p.image = filepath.Join(p.r.c.dir, fmt.Sprintf("%s.%d", p.r.id, p.r.lives))
	if err := copyTree(p.dir, p.image); err != nil {
		p.r.c.fail("copying the data directory of %s: %v", p.r.id, err)
	}
}

// copyTree copies a directory.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, relative), 0o700)
		}
		return copyFile(path, filepath.Join(to, relative))
	})
}

// copyFile copies a file, and leaves holes where it has only zeros: a new segment of
// the log is large and empty.
func copyFile(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // read only
	info, err := source.Stat()
	if err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	block := make([]byte, 64<<10)
	zeros := make([]byte, len(block))
	for at := int64(0); ; {
		n, err := io.ReadFull(source, block)
		if n > 0 && !bytes.Equal(block[:n], zeros[:n]) {
			if _, err := target.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return target.Truncate(info.Size())
		}
		if err != nil {
			return err
		}
	}
}
