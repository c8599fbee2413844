package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// MakeDir creates a directory and its missing parents. All of them are durable when it
// returns.
func MakeDir(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("creating directory %s: %w", path, err)
	}
	parent := filepath.Dir(path)
	_, err = os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	if isNew && parent != path {
		if err := MakeDir(parent); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("creating directory %s: %w", path, err)
	}
	// An existing directory may have been created by a process that exited before
	// this sync. Its parent may also be unreadable for this process, which is no
	// reason to fail.
	if err := SyncDir(parent); err != nil && isNew {
		return fmt.Errorf("syncing directory %s: %w", parent, err)
	}
	return nil
}

// SyncDir makes the names of the files in a directory durable.
func SyncDir(path string) error {
	dir, err := os.Open(path) //nolint:gosec // a directory of this program
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// ReplaceFile replaces the file at path. A crash leaves either the old content or the
// new.
func ReplaceFile(path string, data []byte) error {
	tmp := path + ".tmp"
	file, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // a file of this program
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}
