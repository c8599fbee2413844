package process

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// DefaultUmask is the file mode creation mask of a program: what it creates can be read
// by everybody, and changed by its owner.
const DefaultUmask = 0o022

// A Spec is one program to run.
type Spec struct {
	// Argv is the program and its arguments. A name without a slash is searched
	// in the absolute directories of the PATH in Env; a relative path starts at
	// Dir.
	Argv []string
	// Env is the complete environment, KEY=VALUE; nothing is inherited.
	Env []string
	// Dir is the working directory; it must exist.
	Dir string
	// Umask is the file mode creation mask; nil means [DefaultUmask].
	Umask *uint32
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
	// Lease ends the program when it ends, without a grace, and Run returns
	// [ErrLeaseEnded]; nil means no limit.
	Lease *Lease
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
	errNoArgv   = errors.New("argument list is empty")
	errNUL      = errors.New("contains a NUL byte")
	errEnvEntry = errors.New("environment entry is not NAME=VALUE")
)

// order checks the Spec and returns the start order for the supervisor.
func (s *Spec) order(u *User) (*startOrder, error) {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return nil, &StartError{Path: "program", Err: errNoArgv}
	}
	for _, arg := range s.Argv {
		if strings.ContainsRune(arg, 0) {
			return nil, &StartError{Path: "program", Err: errNUL}
		}
	}
	for _, entry := range s.Env {
		if strings.IndexByte(entry, '=') < 1 || strings.ContainsRune(entry, 0) {
			return nil, &StartError{Path: s.Argv[0], Err: errEnvEntry}
		}
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return nil, &StartError{Path: s.Dir, IsDir: true, Err: err}
	}
	var program string
	err = u.Do(func() error { // which programs it finds depends on the user
		if err := checkDir(dir); err != nil {
			return err
		}
		program, err = lookPath(s.Argv[0], dir, s.Env)
		return err
	})
	if err != nil {
		return nil, err
	}
	umask := DefaultUmask
	if s.Umask != nil {
		umask = int(*s.Umask & 0o777)
	}
	order := &startOrder{Path: program, Argv: s.Argv, Env: s.Env, Dir: dir, Umask: umask, User: u, StartBefore: s.StartBefore}
	if s.Lease != nil {
		until, _ := s.Lease.current()
		order.EndBefore = max(until, 1) // 0 would be no limit
	}
	return order, nil
}
