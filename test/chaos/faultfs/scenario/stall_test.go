package scenario

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// store is the file with the log, term and vote.
const store = "raft.db"

// TestABriefSyncStallEndsNoProcess (F38): a sync may take a second. A busy machine can make it
// take half a second more, which ends the process, and the test need not feel that: only a
// process that exits four times in a row fails.
func TestABriefSyncStallEndsNoProcess(t *testing.T) {
	r := start(t, seedOf(t))
	r.begin(t, r.seed)
	r.awaitBegun(t, 5)
	again := 3
	for round := 0; round < 2; round++ {
		victim := clustertest.Leader(t, r.c)
		if round == 1 {
			victim = r.follower(t)
		}
		pid := victim.Pid()
		hiccup, err := r.disk(victim).HangOnce(faultfs.Sync, faultfs.LogFiles, time.Second)
		clustertest.Must(t, err)
		r.awaitFired(t, hiccup)
		fired := time.Now()
		took := r.awaitBegun(t, 10)
		// The others may have started these while the disk of a follower still hangs.
		clustertest.Must(t, cluster.Pause(t.Context(), time.Until(fired.Add(2*time.Second))))
		if !victim.Running() || victim.Pid() != pid {
			r.ends(t, victim)
			if again == 0 {
				t.Fatalf("%s exited because its disk took a second, like the processes of three tries before", victim.Name)
			}
			t.Logf("%s exited because its disk took a second, or longer: trying again", victim.Name)
			again, round = again-1, round-1
			r.back(t, victim)
			continue
		}
		again = 3
		t.Logf("%s: work resumed %v after its disk took a second", victim.Name, took.Round(time.Millisecond))
		r.fired("F38")
	}
	r.judge(t)
}

// TestALeaderWhoseDiskHangsIsReplaced (F38) hangs the leader's disk for five
// seconds, or until it is repaired. The cluster must not wait for that: work resumes
// within clustertest.FailoverLimit.
func TestALeaderWhoseDiskHangsIsReplaced(t *testing.T) {
	r := start(t, seedOf(t))
	r.begin(t, r.seed)
	for _, length := range []time.Duration{5 * time.Second, 0} {
		r.awaitBegun(t, 5)
		leader := clustertest.Leader(t, r.c)
		stall, err := r.disk(leader).Add(faultfs.Rule{Ops: ops(faultfs.Sync), Name: faultfs.LogFiles, Delay: length, Hang: length == 0})
		clustertest.Must(t, err)
		r.awaitFired(t, stall)
		hung := time.Now()
		next, err := r.c.AwaitLeaderOtherThan(t.Context(), leader)
		clustertest.Must(t, err)
		elected := time.Since(hung)
		r.awaitBegun(t, 10)
		resumed := time.Since(hung)
		t.Logf("%s leads %v after the disk of %s hung, and work resumes after %v", next.Name,
			elected.Round(time.Millisecond), leader.Name, resumed.Round(time.Millisecond))
		if err := clustertest.WithinFailoverLimit("work after the disk of "+leader.Name+" hung", resumed); err != nil {
			t.Error(err)
		}
		if length == 0 {
			// The other replicas continue however long it hangs.
			clustertest.Must(t, cluster.Pause(t.Context(), longHang(t)))
			r.awaitBegun(t, 10)
			if now := clustertest.Leader(t, r.c); now == leader {
				t.Errorf("%s leads again while its disk hangs", leader.Name)
			}
		}
		// A process cannot exit before the kernel releases its threads.
		clustertest.Must(t, stall.Lift())
		r.ends(t, leader)
		r.back(t, leader)
		r.fired("F38")
	}
	r.judge(t)
}

// longHang is how long a disk keeps hanging after the cluster has resumed: longer in
// long runs.
func longHang(t *testing.T) time.Duration {
	t.Helper()
	return time.Duration(number(t, "DTASK_LONG_HANG", 3)) * time.Second //nolint:gosec // seconds
}

// TestOneFailedSyncOrWriteEndsTheProcess (F39, F40, F50): after any failure the
// contents of the disk are unknown. The coordinator restarts on the same disk after
// it is healed.
func TestOneFailedSyncOrWriteEndsTheProcess(t *testing.T) {
	r := start(t, seedOf(t))
	r.begin(t, r.seed)
	for _, fault := range []struct {
		kind string
		rule faultfs.Rule
	}{
		{"F39", faultfs.Rule{Ops: ops(faultfs.Sync), Name: faultfs.LogFiles, Errno: syscall.EIO, Times: 1}},
		{"F40", faultfs.Rule{Ops: ops(faultfs.Write), Name: faultfs.LogFiles, Errno: syscall.EIO, Times: 1}},
		{"F50", faultfs.Rule{Errno: syscall.EROFS}},
	} {
		for round := range 2 {
			r.awaitBegun(t, 5)
			victim := clustertest.Leader(t, r.c)
			if round == 1 {
				victim = r.follower(t)
			}
			f, err := r.disk(victim).Add(fault.rule)
			clustertest.Must(t, err)
			r.awaitFired(t, f)
			r.ends(t, victim)
			r.awaitBegun(t, 5)
			clustertest.Must(t, f.Lift())
			r.back(t, victim)
			r.fired(fault.kind)
		}
	}
	r.judge(t)
}

// TestSlowDisksOnlyReduceThroughput (F51) delays each sync of all coordinators by 50
// ms. A busy machine causes elections and makes slow disks slower: only what happens three
// times in a row fails.
func TestSlowDisksOnlyReduceThroughput(t *testing.T) {
	r := start(t, seedOf(t))
	r.begin(t, r.seed)
	for try := 1; ; try++ {
		harm := r.slowDisks(t)
		if harm == "" {
			break
		}
		if try == 3 {
			t.Errorf("the third time in a row: %s", harm)
			break
		}
		t.Logf("%s: trying again", harm)
	}
	r.fired("F51")
	r.judge(t)
}

// slowDisks slows all disks down until 60 commands have started, and returns what that has
// harmed; "" if nothing.
func (r *rig) slowDisks(t *testing.T) (harm string) {
	t.Helper()
	before, err := r.c.Status(t.Context())
	clustertest.Must(t, err)
	for _, d := range r.disks {
		_, err := d.Slow(faultfs.Sync, faultfs.LogFiles, 50*time.Millisecond)
		clustertest.Must(t, err)
	}
	took := r.awaitBegun(t, 60)
	after, err := r.c.Status(t.Context())
	clustertest.Must(t, err)
	if after.Term > before.Term+1 {
		harm = fmt.Sprintf("got term %d, want %d: slow disks caused elections", after.Term, before.Term)
	}
	for _, n := range r.c.Coordinators() {
		clustertest.Must(t, r.disk(n).Heal())
		if !n.Running() {
			r.ends(t, n)
			harm = n.Name + " exited because its disk is slow"
		}
	}
	r.areBack(t, r.c.Coordinators())
	t.Logf("60 commands started within %v, with 50 ms for each sync; terms %d to %d", took.Round(time.Millisecond), before.Term, after.Term)
	return harm
}

// TestNothingIsAcknowledgedBeforeAMajorityHasSyncedIt (R24) holds the syncs of two
// of three replicas: the third has the job on its disk, but does not acknowledge it.
func TestNothingIsAcknowledgedBeforeAMajorityHasSyncedIt(t *testing.T) {
	r := start(t, seedOf(t))
	leader := clustertest.Leader(t, r.c)
	others := r.c.Followers(leader)
	file := cluster.JobFile("held", cluster.Builtin("a", "noop", ""))

	// With one of three disks hanging, the job is acknowledged.
	one, err := r.disk(others[0]).Hang(faultfs.Sync, faultfs.LogFiles)
	clustertest.Must(t, err)
	clustertest.Submit(t, r.c.Ctl, file)
	clustertest.Must(t, one.Lift())
	r.areBack(t, others[:1]) // it may be about to exit
	clustertest.Must(t, r.c.AwaitCaughtUp(t.Context(), others[0]))

	synced, err := r.disk(leader).Counts()
	clustertest.Must(t, err)
	var holds []*faultfs.Fault
	for _, n := range others {
		hold, err := r.disk(n).Hang(faultfs.Sync, faultfs.LogFiles)
		clustertest.Must(t, err)
		holds = append(holds, hold)
	}
	type outcome struct {
		id  string
		err error
	}
	answered := make(chan outcome, 1)
	said := []int{saidWhy(t, others[0]), saidWhy(t, others[1])}
	go func() {
		id, err := r.c.Submit(t.Context(), file, "--timeout", "5m") // two coordinators exit and restart, and elect a leader, meanwhile
		answered <- outcome{id, err}
	}()
	for i, hold := range holds {
		r.awaitFired(t, hold)
		if counts, err := r.disk(others[i]).Counts(); err != nil || counts[faultfs.Write] == 0 {
			t.Errorf("%s has written nothing: got counts %v, %v", others[i].Name, counts, err)
		}
	}
	clustertest.Must(t, cluster.Until(t.Context(), "the leader has synced the job", guard, func(context.Context) error {
		counts, err := r.disk(leader).Counts()
		if err == nil && counts[faultfs.Sync] <= synced[faultfs.Sync] {
			err = fmt.Errorf("%d syncs, no more than before", counts[faultfs.Sync])
		}
		return err
	}))
	clustertest.Must(t, cluster.Until(t.Context(), "both report a hung disk", guard, func(context.Context) error {
		for i, n := range others {
			if saidWhy(t, n) == said[i] {
				return fmt.Errorf("%s has not", n.Name)
			}
		}
		return nil
	}))
	clustertest.Must(t, cluster.Pause(t.Context(), time.Second))
	select {
	case got := <-answered:
		t.Fatalf("got answer %+v while two of three replicas have not synced the job, want none", got)
	default:
	}
	for i, hold := range holds {
		clustertest.Must(t, hold.Lift())
		r.ends(t, others[i])
		clustertest.Must(t, others[i].Start(t.Context()))
	}
	got := <-answered
	clustertest.Must(t, got.err)
	job, err := r.c.AwaitEnd(t.Context(), got.id, endLimit)
	clustertest.Must(t, err)
	if job.State != "completed" {
		t.Errorf("the job is %s, want completed", job.State)
	}
	r.fired("F38")
	r.judge(t)
}

// saidWhy returns the number of lines in which a coordinator has reported why it
// exits.
func saidWhy(t *testing.T, n *cluster.Coordinator) (lines int) {
	t.Helper()
	text, err := n.Log()
	clustertest.Must(t, err)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "dtaskd:") {
			lines++
		}
	}
	return lines
}
