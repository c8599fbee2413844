// Package builtin implements the task types of every standard worker: echo,
// noop, sleep, fail, prime, map and reduce. Samples, tests and load runs use
// them, so that they work on any worker.
//
// It defines the types' behavior and payloads. It does not know sessions and
// slots: each type is an ordinary handler. It starts no goroutines. An invalid
// payload or input is a fatal error, because no retry can fix it; a file that
// cannot be read is an ordinary one.
package builtin

import (
	"context"

	"github.com/dtask/dtask/worker"
)

// Registry registers handlers; a *worker.Worker is one.
type Registry interface {
	// Handle registers the handler of tasks whose type is name.
	Handle(name string, h func(ctx context.Context, t *worker.Task) ([]byte, error))
}

// Register registers the handlers of all built-in types.
func Register(r Registry) {
	for name, h := range map[string]worker.Handler{
		"echo": echo, "noop": noop, "sleep": sleep, "fail": fail, "prime": prime, "map": mapWords, "reduce": reduceWords,
	} {
		r.Handle(name, h)
	}
}
