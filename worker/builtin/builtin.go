// Package builtin has the task types that every stock worker brings: echo,
// noop, sleep, fail, prime, map and reduce. They are there so that samples,
// tests and load runs work on any worker.
//
// It owns what these types do and how their payloads are written. It knows
// nothing of sessions and slots: each type is an ordinary handler. It starts no
// goroutines. A payload or an input that makes no sense is a fatal error, since
// no repeat can cure it; a file that cannot be read is an ordinary one.
package builtin

import (
	"context"

	"github.com/dtask/dtask/worker"
)

// Registrar takes handlers; a *worker.Worker is one.
type Registrar interface {
	// Handle makes h the handler of tasks whose type is name.
	Handle(name string, h func(ctx context.Context, t *worker.Task) ([]byte, error))
}

// Register gives all built-in types to a worker.
func Register(w Registrar) {
	w.Handle("echo", echo)
	w.Handle("noop", noop)
	w.Handle("sleep", sleep)
	w.Handle("fail", fail)
	w.Handle("prime", prime)
	w.Handle("map", mapWords)
	w.Handle("reduce", reduceWords)
}
