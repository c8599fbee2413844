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

// checkDir returns an error for an unusable working directory. The kernel's
// error comes too late: a failed exec does not tell whether the directory or
// the program is the reason.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	switch err := underlying(err); {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return &StartError{Path: dir, IsDir: true, Err: err, Advice: advisePermission}
	default:
		return &StartError{Path: dir, IsDir: true, Err: err, Advice: adviseDirectory}
	}
}

// lookPath returns the file to execute for name, according to the PATH of env
// and not of the worker. It skips relative entries of PATH: files in the
// working directory must not decide which program runs.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		file, missing := name, adviseAbsolute
		if !filepath.IsAbs(file) {
			file, missing = filepath.Join(dir, name), adviseRelative
		}
		if err := executable(file); err != nil {
			return "", &StartError{Path: name, Err: err, Advice: fileAdvice(err, missing)}
		}
		return file, nil
	}
	found := errNotInPath
	for _, path := range filepath.SplitList(lastValue(env, "PATH")) {
		if !filepath.IsAbs(path) {
			continue
		}
		file := filepath.Join(path, name)
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			found = err // more specific than "not found" in a later directory
		}
	}
	return "", &StartError{Path: name, Err: found, Advice: fileAdvice(found, adviseInstall)}
}

// fileAdvice returns what to do about a file that can't be executed; missing is for one
// that does not exist.
func fileAdvice(err error, missing string) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing
	case errors.Is(err, errNotExecutable):
		return adviseChmod
	}
	return permissionAdvice(err)
}

// executable returns why the mode of file prevents its execution. The kernel
// may have further reasons.
func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return underlying(err)
	case info.IsDir():
		return syscall.EISDIR
	case info.Mode().Perm()&0o111 == 0:
		return errNotExecutable
	}
	return nil
}

// underlying strips the operation and path, which a StartError contains
// already.
func underlying(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// lastValue returns the value of name in env. The last of several entries
// counts.
func lastValue(env []string, name string) string {
	for _, entry := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
