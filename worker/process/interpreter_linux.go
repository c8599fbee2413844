package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxInterpreterLine is how much of the first line of a script the kernel reads, in bytes.
const maxInterpreterLine = 256

// explainExec returns the error for a file that exists, but that the kernel did not
// execute. The kernel's reason alone is misleading: ENOENT is about the interpreter of a
// script, or about the loader of a binary, but not about the file.
func explainExec(o *startOrder, err syscall.Errno) *StartError {
	failure := &StartError{Path: o.Argv[0], Err: err}
	switch err { //nolint:exhaustive // other reasons need no explanation
	case syscall.ENOEXEC:
		failure.Advice = adviseFormat
	case syscall.ENOENT:
		head, readErr := firstLine(o.Path)
		switch interpreter := interpreterOf(head); {
		case interpreter != "":
			failure.interpreter(interpreter)
		case readErr == nil:
			failure.Err, failure.Advice = fmt.Errorf("its dynamic loader: %w", err), adviseLoader
		case errors.Is(readErr, fs.ErrPermission):
			failure.Err = fmt.Errorf("its interpreter or dynamic loader: %w", err)
		default: // it was removed a moment ago
			failure.Advice = adviseAbsolute
		}
	case syscall.EACCES:
		failure.Advice = advisePermission
		head, _ := firstLine(o.Path) // often it can't be read either
		interpreter := interpreterOf(head)
		switch {
		case !isSearchable(o.Dir):
			failure.Path, failure.IsDir = o.Dir, true
		case interpreter != "" && isSearchable(o.Path):
			failure.interpreter(interpreter)
		}
	}
	return failure
}

// isSearchable reports whether a file may be executed, or a directory used. Unlike
// access(2), it is about the identity that User.Do changes.
func isSearchable(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) == nil
}

// interpreter makes the interpreter of a script the reason.
func (e *StartError) interpreter(path string) {
	switch {
	case strings.HasSuffix(path, "\r"):
		e.Advice = adviseLineEnds
	case errors.Is(e.Err, fs.ErrNotExist):
		e.Advice = adviseInterpreter
	}
	e.Err = fmt.Errorf("its interpreter %q: %w", path, e.Err)
}

// interpreterOf returns the interpreter of a script from its first line; empty if it has
// none.
func interpreterOf(line []byte) string {
	text, ok := strings.CutPrefix(string(line), "#!")
	if !ok {
		return ""
	}
	text = strings.Trim(text, " \t")
	if end := strings.IndexAny(text, " \t"); end >= 0 {
		text = text[:end]
	}
	return text
}

// firstLine reads the first line of a regular file, without its end.
func firstLine(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // only whether there is a line matters
	}
	if !info.Mode().IsRegular() {
		return nil, fs.ErrInvalid
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) //nolint:gosec // the program of the job file; it may be a pipe by now
	if err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	defer file.Close() //nolint:errcheck // read only
	head, err := io.ReadAll(io.LimitReader(file, maxInterpreterLine))
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return line, err //nolint:wrapcheck // as above
}
