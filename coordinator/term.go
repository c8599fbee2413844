package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/dtask/dtask/coordinator/leader"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// term is the duty of leading: it makes a sequencer for as long as a term
// lasts. While it has none, this replica serves no workers and no writes.
type term struct{ r *replica }

// Name implements leader.Duty.
func (term) Name() string { return "sequencer" }

// Run implements leader.Duty.
func (d term) Run(ctx context.Context, number uint64) error {
	r := d.r
	id := r.identity.Get()
	wake, noticed := noticing()
	s, err := sequencer.New(sequencer.Config{
		Members: r.unrecorded(ctx), ServerID: r.id, Instance: id.Instance, Term: number,
		Log: r.cfg.Seams.Log(ctx, proposer{r.node.Load()}), Machine: r.machine, Codec: fsm.Compact{},
		Logger: r.log.With("term", number), Totals: r.totals, Definite: neverProposed, WallClock: r.cfg.Wall,
		NewClusterID: newClusterID, Seed: randomSeed(),
		LivenessTimeout: 3 * r.cfg.HeartbeatInterval, KeepFor: r.cfg.KeepFor, KeepJobs: r.cfg.KeepJobs,
		HistoryAge: r.cfg.HistoryAge, HistoryBusy: r.history.Busy,
		ClockAgrees: r.clockAgrees, Halt: r.fatal, CheckSubmit: func() error { return roomForJobs(r.node.Load()) },
		DeadLetterNotifications: r.noticeHooks.DeadLetterKinds(), NotificationsCommitted: noticed, TimeScale: r.cfg.TimeScale,
	})
	if err != nil {
		return err
	}
	s.StopAssigning(r.disputed.Load())
	r.term.Store(s)
	defer r.term.Store(nil)
	r.leaderChanges.Add(1)
	return r.leadAndTell(ctx, s, wake)
}

// scanRate is how many tasks a leader surely looks through in a second.
const scanRate = 100_000

// watchdog gives leadership up when it is not taken up, or when nothing is applied.
func (r *replica) watchdog(node *raftnode.Node) leader.Watchdog {
	return leader.Watchdog{
		Progress: node.Progress, TimeScale: r.cfg.TimeScale,
		Established: func() bool {
			s := r.term.Load()
			if s == nil {
				return false
			}
			select {
			case <-s.Ready():
				return true
			default:
				return false
			}
		},
		Scan: func() time.Duration {
			var tasks uint64
			r.machine.Read(func(s *fsm.State, _ uint64) {
				for job := range s.Jobs(0) {
					tasks += uint64(job.Total)
				}
			})
			return time.Duration(tasks) * time.Second / scanRate //nolint:gosec // far below 2^63 / 10^9
		},
	}
}

// spaceAgain is when a client should ask again whose job is refused for want of
// disk space: it does not come back within milliseconds.
const spaceAgain = 5 * time.Second

// roomForJobs says why no new job is taken.
func roomForJobs(disk interface{ LowSpace() bool }) error {
	if disk.LowSpace() {
		return &sequencer.BusyError{What: "the disk is nearly full at the leader", Limit: sequencer.LimitDisk, RetryAfter: spaceAgain}
	}
	return nil
}

func newClusterID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func randomSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	var seed uint64
	for _, x := range b {
		seed = seed<<8 | uint64(x)
	}
	return seed
}
