package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

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
	limited := telemetry.Limit(l)
	r.httpListener = limited
	h := r.cfg.Seams.HTTP(web.Handler(r.registry(), r.ready, r.log), r.internals())
	h, l = telemetry.AllowHosts(r.guardHTTP(h), r.httpHosts), r.security.secureHTTP(limited)
	group.Go(func() error { return telemetry.Serve(ctx, l, h, r.log) })
	return nil
}

// httpHosts are the names under which others may reach the port for metrics and health:
// those that the settings, the operating system and the certificate give to this machine.
func (r *replica) httpHosts() []string {
	names := r.cfg.HTTPHosts
	for _, address := range []string{r.cfg.HTTP, r.cfg.Advertise} {
		if host, _, err := net.SplitHostPort(address); err == nil {
			names = append(slices.Clip(names), host)
		}
	}
	if name, err := os.Hostname(); err == nil {
		names = append(slices.Clip(names), name)
	}
	return append(slices.Clip(names), r.security.hostNames()...)
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
