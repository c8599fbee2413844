package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/coordinator/web"
	"github.com/dtask/dtask/fsm"
)

// serveHTTP serves metrics and health, and the test hooks if they are wanted.
func (r *replica) serveHTTP(ctx context.Context, group *errgroup.Group) error {
	if r.cfg.HTTP == "" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.cfg.HTTP)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	r.http = l.Addr().String()
	h := web.Handler(r.registry(), r.ready, r.log)
	if r.cfg.TestHooks {
		h = r.hooks(h)
	}
	group.Go(func() error { return web.Serve(ctx, l, h, r.log) })
	return nil
}

// ready gives all reasons why this replica should get no calls now, joined; nil if
// there are none.
func (r *replica) ready() error {
	err := r.api.Ready()
	if instance, known := r.knownInstance(r.cfg.ID); !known || instance != r.identity.Get().Instance {
		err = errors.Join(err, errors.New("the cluster has not recorded this replica yet"))
	}
	return err
}

// hooks adds what damages this replica on purpose, for tests that it is noticed.
func (r *replica) hooks(rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", rest)
	mux.HandleFunc("POST /test/flip", func(w http.ResponseWriter, q *http.Request) {
		job, errJob := strconv.ParseUint(q.FormValue("job"), 10, 64)
		task, errTask := strconv.ParseUint(q.FormValue("task"), 10, 32)
		if errJob != nil || errTask != nil || !r.machine.Flip(fsm.TaskRef{Job: fsm.JobID(job), Index: uint32(task)}) {
			http.Error(w, "no such task", http.StatusNotFound)
			return
		}
	})
	return mux
}
