package worker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dtask/dtask/internal/secretname"
)

// secretSource is a directory with one file for each secret of a worker. Names are
// announced to the leader. Contents are read at the start of each attempt that needs them,
// and stay in this process and in the copies for commands.
type secretSource struct {
	dir   string
	names []string // sorted
}

// openSecrets lists the secrets in a directory. It returns an error if other users could
// read one of them, and nil if dir is empty.
func openSecrets(dir string, log *slog.Logger) (*secretSource, error) {
	if dir == "" {
		return nil, nil //nolint:nilnil // most workers have no secrets
	}
	dir, err := filepath.Abs(dir)
	var entries []os.DirEntry
	if err == nil {
		entries, err = os.ReadDir(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("opening secrets directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err == nil {
		err = checkPrivate(info)
	}
	if err != nil {
		return nil, fmt.Errorf("secrets directory %s: %w", dir, err)
	}
	s := &secretSource{dir: dir}
	var faults []error
	for _, entry := range entries { // sorted by name
		name := entry.Name()
		info, err := os.Stat(filepath.Join(dir, name)) // secrets are often symbolic links
		switch {
		case secretname.IsHidden(name) || err == nil && info.IsDir():
			continue
		case !isName(name):
			log.Warn("file in the secrets directory ignored: not a name of a secret", "file", name)
			continue
		case err == nil:
			err = checkSecret(info)
		}
		if err != nil {
			faults = append(faults, secretError(name, err))
		}
		s.names = append(s.names, name)
	}
	return s, errors.Join(faults...)
}

// announced returns the names of the worker's secrets.
func (s *secretSource) announced() []string {
	if s == nil {
		return nil
	}
	return s.names
}

// read reads the current contents of a secret.
func (s *secretSource) read(name string) ([]byte, error) {
	if s == nil || !slices.Contains(s.names, name) {
		return nil, fmt.Errorf("secret %s: this worker does not have it: add it to --secrets-dir and restart the worker", name)
	}
	path := filepath.Join(s.dir, name)
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) //nolint:gosec // a pipe must not block
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("secret %s: %s has vanished: restore it, or restart this worker to get no more tasks that need it", name, path)
	}
	if err != nil {
		return nil, secretError(name, err)
	}
	defer func() { _ = file.Close() }() // read only
	info, err := file.Stat()
	if err == nil {
		err = checkSecret(info)
	}
	var contents []byte
	if err == nil {
		contents, err = io.ReadAll(io.LimitReader(file, secretname.MaxBytes+1))
	}
	if err == nil {
		err = checkSecretSize(int64(len(contents))) // it may have grown
	}
	if err != nil {
		return nil, secretError(name, err)
	}
	return contents, nil
}

func secretError(name string, err error) error { return fmt.Errorf("secret %s: %w", name, err) }

// checkSecret returns why the file of a secret can't be used.
func checkSecret(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	return errors.Join(checkPrivate(info), checkSecretSize(info.Size()))
}

func checkSecretSize(size int64) error {
	if size > secretname.MaxBytes {
		return fmt.Errorf("has more than %d bytes: a secret has at most 64 KiB", secretname.MaxBytes)
	}
	return nil
}

// checkPrivate returns an error if users other than root and the worker's own could read
// or replace a file. Root may give a group access to read it: service managers and
// container platforms pass secrets that way.
func checkPrivate(info fs.FileInfo) error {
	var owner uint32
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = stat.Uid
	}
	mode := info.Mode().Perm()
	switch {
	case mode&0o007 != 0:
		return fmt.Errorf("mode %04o gives access to all users: run chmod o= on it", mode)
	case owner != 0 && int(owner) != os.Geteuid():
		return fmt.Errorf("belongs to user %d, neither to root nor to the worker's user: run chown on it", owner)
	case mode&0o020 != 0 || mode&0o070 != 0 && owner != 0:
		return fmt.Errorf("mode %04o gives access to its group: run chmod g= on it", mode)
	}
	return nil
}
