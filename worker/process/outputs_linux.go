package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// outputs are the output pipes of a program. One goroutine reads them, in the order in
// which they became readable: with one for each, the scheduler would choose the order.
//
// What a program writes to both before the goroutine has run is read as one piece of
// each: pipes have no times.
type outputs struct {
	pipes []*outputPipe
	open  int      // of pipes
	epoll int      // of the pipes
	ready *os.File // epoll; waiting for it blocks only a goroutine
	conn  syscall.RawConn
}

// An outputPipe is the read end of a pipe.
type outputPipe struct {
	fd     int // -1 = closed
	to     io.Writer
	name   string
	broken bool // to has failed
}

// watch prepares the pipes for copying.
func (o *outputs) watch() error {
	if len(o.pipes) == 0 {
		return nil
	}
	var err error
	if o.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if o.ready, err = pollable(o.epoll, "outputs"); err != nil {
		return err
	}
	if o.conn, err = o.ready.SyscallConn(); err != nil {
		return fmt.Errorf("watching output: %w", err)
	}
	o.open = len(o.pipes)
	for i, pipe := range o.pipes {
		// Another process may read from the pipe through /proc: that must not block.
		if err := unix.SetNonblock(pipe.fd, true); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)} //nolint:gosec // at most 2
		if err := unix.EpollCtl(o.epoll, unix.EPOLL_CTL_ADD, pipe.fd, &event); err != nil {
			return os.NewSyscallError("epoll_ctl", err)
		}
	}
	return nil
}

// limit bounds how long wait waits from now on.
func (o *outputs) limit() {
	if o.ready != nil {
		_ = o.ready.SetReadDeadline(time.Now().Add(drainLimit))
	}
}

// wait waits until pipes are readable or have ended, and returns them in the order in
// which they became so.
func (o *outputs) wait() ([]*outputPipe, error) {
	var events [2]unix.EpollEvent
	n := 0
	var failed error
	look := func(fd uintptr) bool {
		for {
			if n, failed = unix.EpollWait(int(fd), events[:], 0); !errors.Is(failed, unix.EINTR) {
				return n > 0 || failed != nil
			}
		}
	}
	err := o.conn.Read(look)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// This process may have been stopped for as long: the output that is there counts.
		found := false
		_ = o.conn.Control(func(fd uintptr) { found = look(fd) }) // fails only if it is closed
		if found {
			err = nil
		}
	}
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("waiting for output: %w", err)
	}
	list := make([]*outputPipe, 0, len(events))
	for _, e := range events[:n] {
		list = append(list, o.pipes[e.Fd])
	}
	return list, nil
}

// end closes a pipe that has ended.
func (o *outputs) end(pipe *outputPipe) {
	if o.open--; o.open > 0 {
		// Closing alone does not remove it while a child that is being forked has a copy.
		_ = unix.EpollCtl(o.epoll, unix.EPOLL_CTL_DEL, pipe.fd, nil)
	}
	_ = unix.Close(pipe.fd) // read only
	pipe.fd = -1
}

func (o *outputs) close() {
	for _, pipe := range o.pipes {
		if pipe.fd >= 0 {
			_ = unix.Close(pipe.fd) // read only
		}
	}
	if o.ready != nil {
		_ = o.ready.Close() // nothing was written
	}
}

// buffers holds those of copyOutputs: most programs write nothing or little.
var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// copyOutputs copies the output until all pipes have ended. It continues to read after a
// writer has failed: a program must not die of a broken pipe because a log is full.
func (p *stdio) copyOutputs() {
	pooled := buffers.Get().(*[32 << 10]byte) //nolint:forcetypeassert,errcheck // holds nothing else
	defer buffers.Put(pooled)
	for p.outputs.open > 0 {
		if p.ended.Load() {
			p.outputs.limit()
		}
		ready, err := p.outputs.wait()
		if err != nil {
			return // the deadline of a pipe that another process holds open
		}
		for _, pipe := range ready {
			n, err := unix.Read(pipe.fd, pooled[:])
			switch {
			case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			case err != nil || n == 0:
				p.outputs.end(pipe)
			case pipe.broken:
			default:
				if _, err := pipe.to.Write(pooled[:n]); err != nil {
					pipe.broken = true
					p.fail(pipe.name, err)
				}
			}
		}
	}
}
