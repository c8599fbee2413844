package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// checkDir reports a working directory that cannot be one. The kernel's own
// answer comes too late: an exec that fails does not say whether it was the
// directory or the program.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return &StartError{Path: dir, Err: underlying(err)}
	}
	if !info.IsDir() {
		return &StartError{Path: dir, Err: syscall.ENOTDIR}
	}
	return nil
}

// lookPath finds the file to execute for name, in the PATH of env and not in the
// worker's. Relative entries of PATH are skipped: a working directory full of
// foreign files must not decide which program runs.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		file := name
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, name)
		}
		if err := executable(file); err != nil {
			return "", &StartError{Path: name, Err: err}
		}
		return file, nil
	}
	found := error(syscall.ENOENT)
	for _, folder := range filepath.SplitList(lastValue(env, "PATH")) {
		if !filepath.IsAbs(folder) {
			continue
		}
		file := filepath.Join(folder, name)
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			found = err // more telling than "not found" in a later folder
		}
	}
	return "", &StartError{Path: name, Err: found}
}

// executable reports why file cannot be executed as far as its mode tells; the
// kernel has the last word.
func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return underlying(err)
	case info.IsDir():
		return syscall.EISDIR
	case info.Mode().Perm()&0o111 == 0:
		return syscall.EACCES
	}
	return nil
}

// underlying strips the operation and path that a StartError says already.
func underlying(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// lastValue is the value of name in env; the last entry counts, as for execve's
// usual readers after duplicates were removed.
func lastValue(env []string, name string) string {
	for _, entry := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
