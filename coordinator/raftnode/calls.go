package raftnode

import (
	"context"
	"sync"
)

// calls tracks the goroutines of a node, and the calls of raft that take no context.
type calls struct {
	closing <-chan struct{} // closed when the node starts to close

	mu      sync.RWMutex // held for reading while a call starts, for writing to close
	closed  bool
	running sync.WaitGroup
}

// await runs call and returns its error. It returns early when ctx is done or the node
// closes; wait then still waits for the call.
func (c *calls) await(ctx context.Context, call func() error) error {
	if !c.start() {
		return ErrClosed
	}
	done := make(chan error, 1)
	go func() {
		defer c.running.Done()
		done <- call()
	}()
	select {
	case err := <-done:
		return err
	case <-c.closing:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *calls) start() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if !c.closed {
		c.running.Add(1)
	}
	return !c.closed
}

// close refuses further calls.
func (c *calls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}
