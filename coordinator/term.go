package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

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
	s, err := sequencer.New(sequencer.Config{
		Members: r.unrecorded(ctx), ServerID: r.cfg.ID, Instance: id.Instance, Term: number,
		Log: proposer{r.node.Load()}, Machine: r.machine, Codec: fsm.Compact{},
		Logger: r.log.With("term", number), Totals: r.totals, Definite: neverProposed, Wall: r.cfg.Wall,
		NewClusterID: newClusterID, Seed: randomSeed(),
		Silence: 3 * r.cfg.HeartbeatInterval, KeepFor: r.cfg.KeepFor, KeepJobs: r.cfg.KeepJobs,
		Halt: r.fatal, Refuse: func() error { return roomForJobs(r.node.Load()) },
	})
	if err != nil {
		return err
	}
	s.StopAssigning(r.disputed.Load())
	r.term.Store(s)
	defer r.term.Store(nil)
	r.leaderChanges.Add(1)
	return s.Run(ctx)
}

// spaceAgain is when a client should ask again whose job is refused for want of
// disk space: it does not come back within milliseconds.
const spaceAgain = 5 * time.Second

// roomForJobs says why no new job is taken.
func roomForJobs(disk interface{ LowSpace() bool }) error {
	if disk.LowSpace() {
		return &sequencer.BusyError{What: "the disk is nearly full at the leader", RetryAfter: spaceAgain}
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
