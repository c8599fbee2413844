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
	// Argv is the program and its arguments. A name without a slash is looked
	// for in the absolute folders of the PATH in Env; a relative path starts
	// at Dir.
	Argv []string
	// Shell is text for /bin/sh -c.
	Shell string
	// Env is the whole environment, KEY=VALUE; nothing is inherited.
	Env []string
	// Dir is the working directory; it must exist.
	Dir string
	// Stdin is standard input; nil is empty input. An *os.File is handed to the
	// program itself. From any other reader Run copies, and does not return
	// while a Read of it blocks.
	Stdin io.Reader
	// Stdout and Stderr get the output, each Write being one chunk as it came
	// (at most 32 KiB); nil discards. An *os.File is handed to the program
	// itself. When both are the same Writer it is written by one goroutine and
	// sees the chunks in the program's order. A Writer that blocks holds the
	// program up; one that fails is not called again, the rest is discarded and
	// Run returns the error beside the Exit.
	Stdout, Stderr io.Writer
	// KillGrace is how long a stopped program may take between SIGTERM and
	// SIGKILL; zero or less is SIGKILL at once.
	KillGrace time.Duration
}

// An Exit is how a program ended.
type Exit struct {
	Code    int       // exit code, or -1 if a signal ended it
	Signal  string    // name of that signal, such as SIGSEGV; otherwise empty
	Started time.Time // by the wall clock
	Ended   time.Time // Started plus the time it ran by the monotonic clock
	// OOM reports that the program died of a SIGKILL that its supervisor did not
	// send, in a time in which this machine's kernel killed for want of memory.
	// The kernel does not say whom, so it is a strong hint and not a proof.
	OOM bool
	// MaxRSS is the largest resident size of one process of the tree, in bytes.
	MaxRSS int64
	// UserCPU and SysCPU are the processor time of the whole tree.
	UserCPU, SysCPU time.Duration
}

// The reasons of StartErrors that are not the operating system's.
var (
	errOneOf    = errors.New("exactly one of an argument list and shell text is needed")
	errNUL      = errors.New("it contains a NUL byte")
	errEnvEntry = errors.New("an environment entry is not NAME=VALUE")
)

// order checks the Spec and turns it into what the supervisor is told to do.
func (s *Spec) order() (*startOrder, error) {
	argv := s.Argv
	if s.Shell != "" {
		argv = []string{"/bin/sh", "-c", s.Shell}
	}
	if len(argv) == 0 || argv[0] == "" || (s.Shell != "" && len(s.Argv) > 0) {
		return nil, &StartError{Path: "the program", Err: errOneOf}
	}
	for _, arg := range argv {
		if strings.ContainsRune(arg, 0) {
			return nil, &StartError{Path: "the program", Err: errNUL}
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
	return &startOrder{Path: []byte(program), Argv: toBytes(argv), Env: toBytes(s.Env), Dir: []byte(dir)}, nil
}
