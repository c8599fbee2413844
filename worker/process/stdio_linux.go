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
)

// drainLimit is how long an output pipe may stay open and silent after the tree
// is gone. Only a process outside of the tree can hold it open then (its
// descriptor was passed over a socket), and that must not block Run.
const drainLimit = 2 * time.Second

// stdio connects a program's standard streams.
type stdio struct {
	child  [3]*os.File // passed to the supervisor
	opened []*os.File  // those of child to close here
	stdin  *os.File    // write end, if a reader is copied
	reads  []*os.File  // read ends of output pipes

	copying sync.WaitGroup
	ended   atomic.Bool // the tree is gone
	mu      sync.Mutex  // guards failed
	failed  error
}

// openStdio opens the pipes that the Spec needs, and starts copying. The caller
// must call closeChild and finish.
func openStdio(s *Spec) (*stdio, error) {
	p := &stdio{}
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
		return nil
	}
	return p.openOutput(2, s.Stderr, "standard error")
}

func (p *stdio) openStdin(r io.Reader) error {
	if file, ok := r.(*os.File); ok && file != nil {
		p.child[0] = file
		return nil
	}
	if r == nil {
		return p.openNull(0, os.O_RDONLY)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	p.own(0, read)
	p.stdin = write
	p.copying.Go(func() {
		_, err := io.Copy(write, r)
		_ = write.Close() // the end of the input; closed twice if the tree ends first
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
		p.child[i] = file
		return nil
	}
	if w == nil {
		return p.openNull(i, os.O_WRONLY)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	p.own(i, write)
	p.reads = append(p.reads, read)
	p.copying.Go(func() { p.copyOut(w, read, name) })
	return nil
}

func (p *stdio) openNull(i, flag int) error {
	null, err := os.OpenFile(os.DevNull, flag, 0)
	if err != nil {
		return err
	}
	p.own(i, null)
	return nil
}

// own sets a stream of the program that closeChild closes.
func (p *stdio) own(i int, file *os.File) {
	p.child[i] = file
	p.opened = append(p.opened, file)
}

// copyOut writes all chunks to w until the pipe ends. It continues to read
// after w has failed: a program must not die of a broken pipe because a log is
// full.
func (p *stdio) copyOut(w io.Writer, from *os.File, name string) {
	buf := make([]byte, 32<<10)
	good := true
	for {
		if p.ended.Load() {
			_ = from.SetReadDeadline(time.Now().Add(drainLimit))
		}
		n, err := from.Read(buf)
		if n > 0 && good {
			if _, werr := w.Write(buf[:n]); werr != nil {
				good = false
				p.fail(name, werr)
			}
		}
		if err != nil {
			return // the end, or the deadline of a pipe that another process holds open
		}
	}
}

func (p *stdio) fail(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = errors.Join(p.failed, fmt.Errorf("copying %s: %w", name, err))
}

// closeChild closes this process's copies of the program's ends. No pipe ends
// before.
func (p *stdio) closeChild() {
	for _, file := range p.opened {
		_ = file.Close() // nothing was written through this copy
	}
	p.opened = nil
}

// finish is called when the tree is gone. It waits for the copying to end, and
// returns its errors.
func (p *stdio) finish() error {
	p.ended.Store(true)
	for _, read := range p.reads {
		_ = read.SetReadDeadline(time.Now().Add(drainLimit)) // also limits a Read in progress
	}
	if p.stdin != nil {
		_ = p.stdin.Close() // ends a Write in progress
	}
	p.copying.Wait()
	for _, read := range p.reads {
		_ = read.Close() // read only
	}
	return p.failed
}

// sameWriter reports whether both streams have the same Writer. Two nils are
// different: each gets a null device.
func sameWriter(a, b io.Writer) bool {
	return a != nil && b != nil && reflect.TypeOf(a) == reflect.TypeOf(b) &&
		reflect.TypeOf(a).Comparable() && a == b
}
