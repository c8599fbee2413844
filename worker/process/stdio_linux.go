package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// drainLimit is how long an output pipe may stay open and silent after the tree
// is gone. Only a process outside of the tree can hold it open then (its
// descriptor was passed over a socket), and that must not block Run.
const drainLimit = 2 * time.Second

// stdio connects a program's standard streams.
type stdio struct {
	user    *User    // of the program; nil: the worker's
	child   [3]int   // descriptors of the program's ends, which are passed to the supervisor
	opened  []int    // those of child to close here
	stdin   *os.File // write end, if a reader is copied
	outputs outputs

	copying sync.WaitGroup
	ended   atomic.Bool // the tree is gone
	mu      sync.Mutex  // guards failed
	failed  error
}

// openStdio opens the pipes that the Spec needs, and starts copying. The caller
// must call closeChild and finish.
func openStdio(s *Spec, u *User) (*stdio, error) {
	p := &stdio{user: u}
	if err := p.open(s); err != nil {
		p.closeChild()
		return nil, errors.Join(err, p.finish())
	}
	return p, nil
}

func (p *stdio) open(s *Spec) error {
	if err := p.openStdin(s.Stdin); err != nil {
		return err
	}
	if err := p.openOutput(1, s.Stdout, "standard output"); err != nil {
		return err
	}
	if sameWriter(s.Stdout, s.Stderr) {
		p.child[2] = p.child[1]
	} else if err := p.openOutput(2, s.Stderr, "standard error"); err != nil {
		return err
	}
	if err := p.outputs.watch(); err != nil {
		return err
	}
	p.copying.Go(p.copyOutputs)
	return nil
}

func (p *stdio) openStdin(r io.Reader) error {
	if file, ok := r.(*os.File); ok && file != nil {
		p.child[0] = int(file.Fd())
		return nil
	}
	if r == nil {
		return p.openNull(0, os.O_RDONLY)
	}
	read, write, err := p.pipe()
	if err != nil {
		return err
	}
	p.own(0, read)
	stdin, err := pollable(write, "standard input")
	if err != nil {
		return err
	}
	p.stdin = stdin
	p.copying.Go(func() {
		_, err := io.Copy(stdin, r)
		_ = stdin.Close() // the end of the input; closed twice if the tree ends first
		// A program need not read all of its input: a broken pipe is not an
		// error.
		if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
			p.fail("standard input", err)
		}
	})
	return nil
}

func (p *stdio) openOutput(i int, w io.Writer, name string) error {
	if file, ok := w.(*os.File); ok && file != nil {
		p.child[i] = int(file.Fd())
		return nil
	}
	if w == nil {
		return p.openNull(i, os.O_WRONLY)
	}
	read, write, err := p.pipe()
	if err != nil {
		return err
	}
	p.own(i, write)
	p.outputs.pipes = append(p.outputs.pipes, &outputPipe{fd: read, to: w, name: name})
	return nil
}

func (p *stdio) openNull(i, flag int) error {
	null, err := unix.Open(os.DevNull, flag|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	p.own(i, null)
	return nil
}

// own sets a stream of the program that closeChild closes.
func (p *stdio) own(i, fd int) {
	p.child[i] = fd
	p.opened = append(p.opened, fd)
}

// pipe returns the descriptors of a pipe. Unlike those of os.Pipe, they block:
// the program inherits that property with its end. The pipe belongs to the user
// of the program, which may open it by its path, such as /dev/stderr.
func (p *stdio) pipe() (read, write int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return 0, 0, os.NewSyscallError("pipe2", err)
	}
	if p.user != nil {
		if err := unix.Fchown(fds[0], int(p.user.UID), int(p.user.GID)); err != nil {
			return 0, 0, errors.Join(os.NewSyscallError("fchown", err), unix.Close(fds[0]), unix.Close(fds[1]))
		}
	}
	return fds[0], fds[1], nil
}

// pollable returns a file for this process's end of a pipe, whose reads and
// writes block only their goroutine.
func pollable(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd) // nothing was written
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (p *stdio) fail(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = errors.Join(p.failed, fmt.Errorf("copying %s: %w", name, err))
}

// closeChild closes this process's copies of the program's ends, when no
// supervisor needs them any more. No pipe ends before.
func (p *stdio) closeChild() {
	for _, fd := range p.opened {
		_ = unix.Close(fd) // nothing was written through this copy
	}
	p.opened = nil
}

// finish is called when the tree is gone. It waits for the copying to end, and
// returns its errors.
func (p *stdio) finish() error {
	p.ended.Store(true)
	p.outputs.limit() // also a wait in progress
	if p.stdin != nil {
		_ = p.stdin.Close() // ends a Write in progress
	}
	p.copying.Wait()
	p.outputs.close()
	return p.failed
}

// sameWriter reports whether both streams have the same Writer. Two nils are
// different: each gets a null device.
func sameWriter(a, b io.Writer) bool {
	return a != nil && b != nil && reflect.TypeOf(a) == reflect.TypeOf(b) &&
		reflect.TypeOf(a).Comparable() && a == b
}
