package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/coordinator/web"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/telemetry"
)

// serveHTTP serves metrics and health.
func (r *replica) serveHTTP(ctx context.Context, group *errgroup.Group) error {
	if r.cfg.HTTP == "" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.cfg.HTTP)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	r.httpAddress = l.Addr().String()
	h := r.cfg.Seams.HTTP(web.Handler(r.registry(), r.ready, r.log), r.internals())
	h, l = r.guardHTTP(h), r.security.secureHTTP(l)
	group.Go(func() error { return telemetry.Serve(ctx, l, h, r.log) })
	return nil
}

// ready returns all reasons why this replica should get no calls now, joined.
func (r *replica) ready() error {
	err := r.api.Ready()
	r.machine.Read(func(s *fsm.State, _ uint64) {
		if instance, known := s.Instance(r.dir.serverID); !known || instance != r.dir.Identity().Instance {
			err = errors.Join(err, errors.New("the cluster has not recorded this replica yet"))
		}
	})
	return err
}
