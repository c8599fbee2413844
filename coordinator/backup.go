package coordinator

import (
	"context"
	"time"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/internal/backup"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// barrierTimeout is how long a leader may take to answer a replica that writes a backup or makes a plan.
const barrierTimeout = 5 * time.Second

// backups is what the API needs to write backups.
func (r *replica) backups() *api.Backups {
	return &api.Backups{
		Version: r.cfg.Version, Wall: r.cfg.Wall, HandOver: r.cfg.backupCommand(),
		Members: func() []backup.Member {
			members := []backup.Member{}
			for _, s := range r.servers() {
				members = append(members, backup.Member(s))
			}
			return members
		},
	}
}

// askBarrier asks the leader for an index with everything that was acknowledged before.
func (r *replica) askBarrier(ctx context.Context, leader string) (uint64, error) {
	conn, err := r.peers.Conn(leader)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.TimeScale.Scale(barrierTimeout))
	defer cancel()
	got, err := dtaskv1.NewAdminServiceClient(conn).Barrier(ctx, &dtaskv1.BarrierRequest{})
	return got.GetIndex(), err
}
