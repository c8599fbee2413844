package process

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// A Spec is one program to run. Exactly one of Argv and Shell is set.
type Spec struct {
	// Argv is the program and its arguments. A name without a slash is searched
	// in the absolute directories of the PATH in Env; a relative path starts at
	// Dir.
	Argv []string
	// Shell is a script for /bin/sh -c.
	Shell string
	// Env is the complete environment, KEY=VALUE; nothing is inherited.
	Env []string
	// Dir is the working directory; it must exist.
	Dir string
	// Stdin is standard input; nil is empty input. An *os.File is passed to the
	// program itself. Run copies from any other reader, and does not return
	// while a Read blocks.
	Stdin io.Reader
	// Stdout and Stderr receive the output in chunks of at most 32 KiB; nil
	// discards it. An *os.File is passed to the program itself. If both are the
	// same Writer, one goroutine writes the chunks in the program's order. A
	// Writer that blocks blocks the program. A Writer that fails is not called
	// again: the rest is discarded, and Run returns the error beside the Exit.
	Stdout, Stderr io.Writer
	// KillGrace is the time between SIGTERM and SIGKILL for a stopped program;
	// zero or less means SIGKILL immediately.
	KillGrace time.Duration
	// StartBefore is the reading of [Monotonic] from which on the program is not
	// started; zero means no limit.
	StartBefore time.Duration
}

// An Exit is how a program ended.
type Exit struct {
	Code   int    // exit code, or -1 if a signal ended it
	Signal string // name of that signal, such as SIGSEGV; otherwise empty
	// OOM reports that the program died of a SIGKILL that its supervisor did
	// not send, while this machine's kernel killed processes because memory was
	// exhausted. The kernel does not report which, so this is a strong hint and
	// not a proof.
	OOM bool
}

// Reasons of StartErrors that do not come from the operating system.
var (
	errOneOf    = errors.New("exactly one of argument list and shell script is required")
	errNUL      = errors.New("contains a NUL byte")
	errEnvEntry = errors.New("environment entry is not NAME=VALUE")
)

// order checks the Spec and returns the start order for the supervisor.
func (s *Spec) order() (*startOrder, error) {
	argv := s.Argv
	if s.Shell != "" {
		argv = []string{"/bin/sh", "-c", s.Shell}
	}
	if len(argv) == 0 || argv[0] == "" || (s.Shell != "" && len(s.Argv) > 0) {
		return nil, &StartError{Path: "program", Err: errOneOf}
	}
	for _, arg := range argv {
		if strings.ContainsRune(arg, 0) {
			return nil, &StartError{Path: "program", Err: errNUL}
		}
	}
	for _, entry := range s.Env {
		if strings.IndexByte(entry, '=') < 1 || strings.ContainsRune(entry, 0) {
			return nil, &StartError{Path: argv[0], Err: errEnvEntry}
		}
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return nil, &StartError{Path: s.Dir, Err: err}
	}
	if err = checkDir(dir); err != nil {
		return nil, err
	}
	program, err := lookPath(argv[0], dir, s.Env)
	if err != nil {
		return nil, err
	}
	return &startOrder{Path: program, Argv: argv, Env: s.Env, Dir: dir, StartBefore: s.StartBefore}, nil
}
