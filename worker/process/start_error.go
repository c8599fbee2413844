package process

import (
	"errors"
	"io/fs"
	"syscall"
)

// A StartError is returned if the program of a [Spec] could not be started:
// none of it ran. Another try on the same machine is likely to fail, too.
type StartError struct {
	Path   string // the program or working directory that could not be used
	IsDir  bool   // Path is the working directory
	Err    error  // the reason: often a syscall.Errno such as ENOENT or EACCES
	Advice string // what to do about it; may be empty
}

// Error names the path, the reason, and what to do.
func (e *StartError) Error() string {
	text := "starting "
	if e.IsDir {
		text += "in directory "
	}
	text += e.Path + ": " + e.Err.Error()
	if e.Advice != "" {
		text += ": " + e.Advice
	}
	return text
}

// Unwrap returns the reason, for errors.Is with fs.ErrNotExist and others.
func (e *StartError) Unwrap() error { return e.Err }

// What to do about a program or directory that could not be used. All of it is about the
// machine and the user of the worker, which may be others than those of dtaskctl.
const (
	adviseInstall     = "install it on the worker's machine, or set another PATH"
	adviseAbsolute    = "it must exist on the worker's machine"
	adviseRelative    = "relative to the working directory, which is empty unless the task sets cwd"
	adviseDirectory   = "cwd must be a directory on the worker's machine"
	adviseChmod       = "run chmod +x on the worker's machine"
	advisePermission  = "the worker's user needs the permission"
	adviseFormat      = "a script must start with a line such as #!/bin/sh, a binary must be built for the worker's machine"
	adviseInterpreter = "install it on the worker's machine, or correct the first line of the script"
	adviseLineEnds    = "end the lines of the script with LF instead of CR LF"
	adviseLoader      = "build it for the worker's machine, or link it statically"
)

// advise makes advice about the worker's user one about u.
func (u *User) advise(err error) error {
	start, ok := errors.AsType[*StartError](err)
	if ok && u != nil && start.Advice == advisePermission {
		start.Advice = "user " + u.Name + " needs the permission"
	}
	return err
}

// A reason is why a program could not be started, for an error whose own text would be
// about something else.
type reason struct {
	text string
	err  error
}

func (r *reason) Error() string { return r.text }
func (r *reason) Unwrap() error { return r.err }

// Reasons that replace an error of the operating system.
var (
	errNotInPath     error = &reason{"program not found in PATH", syscall.ENOENT}
	errNotExecutable error = &reason{"not executable", syscall.EACCES}
)

// permissionAdvice returns advice for an error that depends on the user of the worker.
func permissionAdvice(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return advisePermission
	}
	return ""
}
