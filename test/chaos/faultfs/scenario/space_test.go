package scenario

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// TestAFullDiskEndsOnlyItsOwnProcess (F41) fills the disk of a follower, then that
// of the leader, without a warning, with each log store.
func TestAFullDiskEndsOnlyItsOwnProcess(t *testing.T) {
	for _, store := range cluster.Stores() {
		t.Run(store, func(t *testing.T) { fullDisk(t, store) })
	}
}

func fullDisk(t *testing.T, store string) {
	t.Helper()
	r := start(t, seedOf(t), "--log-store", store)
	r.begin(t, r.seed)
	for round := range 2 {
		r.awaitBegun(t, 5)
		victim := r.follower(t)
		if round == 1 {
			victim = clustertest.Leader(t, r.c)
		}
		clustertest.Must(t, r.disk(victim).SetFree(0, true))
		fillSegment(t, r, victim)
		r.ends(t, victim)
		r.awaitBegun(t, 10)
		clustertest.Must(t, r.disk(victim).SetFree(faultfs.Plenty, false))
		r.back(t, victim)
		r.fired("F41")
	}
	r.judge(t)
}

// fillSegment submits large jobs until a coordinator has exited: the segmented log
// notices a full disk only when it needs another segment, because it allocates each one
// in advance.
func fillSegment(t *testing.T, r *rig, n *cluster.Coordinator) {
	t.Helper()
	var tasks []cluster.TaskFile
	for i := range 12 {
		tasks = append(tasks, cluster.Builtin(fmt.Sprint("t", i), "noop", strings.Repeat("x", 240<<10)))
	}
	large := cluster.JobFile("large", tasks...)
	clustertest.Must(t, cluster.Until(t.Context(), n.Name+" needs space", guard, func(ctx context.Context) error {
		if !n.Running() {
			return nil
		}
		if a := r.c.RunWith(ctx, large, "submit", "-", "--timeout", "5s"); a.Code != 0 {
			return a.Err()
		}
		return cluster.ErrNotYet
	}))
}

// TestNearlyFullDisksRefuseNewJobsAndFinishOldOnes (F41) leaves little free space on
// all disks, and then none, so that all coordinators exit. With free space again
// nothing is lost.
func TestNearlyFullDisksRefuseNewJobsAndFinishOldOnes(t *testing.T) {
	for _, store := range cluster.Stores() {
		t.Run(store, func(t *testing.T) { nearlyFullDisks(t, store) })
	}
}

func nearlyFullDisks(t *testing.T, store string) {
	t.Helper()
	r := start(t, seedOf(t), "--log-store", store)
	r.tolerate(true)
	r.begin(t, r.seed)
	r.awaitBegun(t, 10)
	long, err := r.submit(t.Context(), cluster.JobFile("long", r.c.Programs.Mark("a", r.path, 4*time.Second)), nil)
	clustertest.Must(t, err)
	for _, d := range r.disks {
		clustertest.Must(t, d.SetFree(100<<20, false))
	}
	small := cluster.JobFile("refused", cluster.Builtin("a", "noop", ""))
	clustertest.Must(t, cluster.Until(t.Context(), "new jobs are refused", guard, func(ctx context.Context) error {
		a := r.c.RunWith(ctx, small, "submit", "-", "-o", "json", "--timeout", "1s")
		if a.Code == 0 {
			return fmt.Errorf("taken: %s", a)
		}
		return nil
	}))
	job, err := r.c.AwaitEnd(t.Context(), long, endLimit)
	clustertest.Must(t, err)
	if job.State != "completed" {
		t.Errorf("the job that ran while the disks were nearly full is %s, want completed", job.State)
	}
	long, err = r.longJob(t)
	clustertest.Must(t, err)
	for _, d := range r.disks {
		clustertest.Must(t, d.SetFree(0, true))
	}
	for _, n := range r.c.Coordinators() {
		r.endsIfAsked(t, n, 5*time.Second)
	}
	for _, n := range r.c.Coordinators() {
		clustertest.Must(t, r.disk(n).SetFree(faultfs.Plenty, false))
	}
	for _, n := range r.c.Coordinators() {
		r.endsIfAsked(t, n, time.Second) // its last write came before the space
	}
	r.areBack(t, r.c.Coordinators()) // one may need longer to exit
	clustertest.Must(t, r.c.AwaitReady(t.Context()))
	r.awaitBegun(t, 10)
	r.fired("F41")
	_, err = r.c.AwaitEnd(t.Context(), long, endLimit)
	clustertest.Must(t, err)
	t.Logf("%d submissions of the load were refused", r.tolerate(false))
	r.judge(t)
}

// longJob frees space for one job and submits it: it is running when the disks
// become full.
func (r *rig) longJob(t *testing.T) (string, error) {
	t.Helper()
	for _, d := range r.disks {
		clustertest.Must(t, d.SetFree(faultfs.Plenty, false))
	}
	return r.submit(t.Context(), cluster.JobFile("long", r.c.Programs.Mark("a", r.path, 3*time.Second)), nil)
}

// endsIfAsked waits until a coordinator has exited because its disk is full, or for a
// time. The last one may stay: without a quorum it can't lead and writes nothing. So may
// one whose log has a segment with space.
func (r *rig) endsIfAsked(t *testing.T, n *cluster.Coordinator, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	code, err := n.Wait(ctx)
	if err == nil && code != exitFatal {
		t.Errorf("%s: got exit code %d, want %d", n.Name, code, exitFatal)
	}
}
