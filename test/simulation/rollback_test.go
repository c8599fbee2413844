package simulation_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// rollback is a cluster in which old and ahead acknowledged jobs while behind was down.
// All are killed, and the data directory of old is as it was before these jobs.
type rollback struct {
	*cluster

	old, behind, ahead *replica
	jobs               map[string]string // names of the acknowledged jobs by id
}

func newRollback(t *testing.T, store string) *rollback {
	t.Helper()
	l := calmLife()
	l.store = store
	c := newCluster(t, 1, l)
	b := &rollback{cluster: c, ahead: c.awaitLeader(), jobs: make(map[string]string)}
	others := slices.DeleteFunc(slices.Clone(c.replicas), func(r *replica) bool { return r == b.ahead })
	b.old, b.behind = others[0], others[1]
	b.submit("early", 5, nil)
	<-time.After(5 * time.Second) // everybody has the cluster's id
	synctest.Wait()
	before := filepath.Join(t.TempDir(), "before")
	if err := copyTree(b.old.process.dir, before); err != nil {
		t.Fatal(err)
	}
	c.kill(true, b.behind)
	b.submit("late", 20, b.jobs)
	c.kill(true, b.old, b.ahead)
	if err := os.RemoveAll(b.old.process.image); err != nil {
		t.Fatal(err)
	}
	if err := copyTree(before, b.old.process.image); err != nil {
		t.Fatal(err)
	}
	c.hasOldCopy = true
	return b
}

// submit submits jobs and records those that were acknowledged.
func (b *rollback) submit(prefix string, count int, jobs map[string]string) {
	b.t.Helper()
	for i := range count {
		name := fmt.Sprintf("%s-%d", prefix, i)
		job, err := spec.Single(spec.SingleTask{Type: "noop", Name: name})
		if err != nil {
			b.t.Fatal(err)
		}
		got, err := b.client.Submit(b.t.Context(), job, client.SubmitOptions{Key: name})
		if err != nil {
			b.t.Fatal(err)
		}
		if jobs != nil {
			jobs[got.ID] = name
		}
	}
}

// kept returns how many of the acknowledged jobs the cluster has.
func (b *rollback) kept() (n int) {
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	for id, name := range b.jobs {
		if got, err := b.client.Job(ctx, id, client.ReadOptions{}); err == nil && got.GetName() == name {
			n++
		}
	}
	return n
}

// alarms are the kinds of alarms in the cluster's status, by member.
func (b *rollback) alarms() map[string][]string {
	kinds := make(map[string][]string)
	conn, err := grpc.NewClient("passthrough:///"+b.behind.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(host{net: b.net, address: "127.0.0.1:9001"}.Dial))
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	got, err := dtaskv1.NewClusterServiceClient(conn).Status(ctx, &dtaskv1.StatusRequest{})
	if err != nil {
		b.t.Errorf("status: %v", err)
	}
	for _, a := range got.GetAlarms() {
		kinds[a.GetMember()] = append(kinds[a.GetMember()], a.GetKind())
	}
	return kinds
}

// rollbackRow is a way in which a cluster with an old copy starts again.
type rollbackRow struct {
	late  string // the replica that starts after the others: ahead, which has all jobs; behind; or old
	by    time.Duration
	store string
	quick bool // the replicas ask each other, and elect the longest log without a timeout
}

// TestARolledBackDirectoryLosesNothingSilently replaces the data directory of one of
// the two replicas that acknowledged jobs by an older copy, after a crash of all, and
// starts one of the three late. Either the jobs survive, or the replica that has them
// keeps them and reports that the cluster lost them.
func TestARolledBackDirectoryLosesNothingSilently(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // guards rows
	var rows []string
	t.Cleanup(func() {
		slices.Sort(rows)
		t.Logf("late, by, store, quick election: outcome\n%s", strings.Join(rows, "\n"))
	})
	for _, late := range []string{"ahead", "behind", "old"} {
		for _, by := range []time.Duration{0, 300 * time.Millisecond, time.Second, 2500 * time.Millisecond, 3 * time.Second, 10 * time.Second} {
			for _, store := range []string{"bolt", "wal"} {
				for _, quick := range []bool{true, false} {
					row := rollbackRow{late, by, store, quick}
					t.Run(fmt.Sprintf("%s/%v/%s/quick=%t", late, by, store, quick), func(t *testing.T) {
						t.Parallel()
						var outcome string
						synctest.Test(t, func(t *testing.T) { outcome = row.run(t) })
						mu.Lock()
						defer mu.Unlock()
						rows = append(rows, fmt.Sprintf("%s, %4.1f s, %s, %t: %s", late, by.Seconds(), store, quick, outcome))
					})
				}
			}
		}
	}
}

// run starts the cluster and returns the outcome: safe, loud or silent.
func (row rollbackRow) run(t *testing.T) (outcome string) {
	t.Helper()
	b := newRollback(t, row.store)
	defer b.stopAll()
	b.net.setWatches(row.quick)
	replicas := map[string]*replica{"ahead": b.ahead, "behind": b.behind, "old": b.old}
	last := replicas[row.late]
	for _, r := range []*replica{b.old, b.behind, b.ahead} {
		if r != last {
			r.start()
		}
	}
	<-time.After(row.by)
	last.start()
	b.submit("new", 20, nil)
	<-time.After(20 * time.Second)
	conflict, err := datadir.ReadConflict(b.ahead.process.dir)
	if err != nil {
		t.Fatal(err)
	}
	kept := b.kept()
	switch {
	case conflict == nil && kept == len(b.jobs):
		if row.late == "ahead" && row.by > 5*time.Second {
			t.Error("the others did not elect a leader without the replica that was late")
		}
		return "safe"
	case conflict == nil:
		t.Errorf("silent: %d of %d acknowledged jobs are left, and nobody noticed", kept, len(b.jobs))
		return "silent"
	default:
		t.Logf("refused; %d of %d jobs are left in the cluster: %+v", kept, len(b.jobs), *conflict)
		if row.quick && (row.late != "ahead" || row.by < 2900*time.Millisecond) {
			t.Error("the others did not wait for the replica that has the latest entries")
		}
		b.wantReported(conflict)
		return "loud"
	}
}

// wantReported checks what the refusing replica does: it has stopped itself, stays out
// when it is started again, and the others report it.
func (b *rollback) wantReported(conflict *datadir.Conflict) {
	b.t.Helper()
	if !b.ahead.ended() || conflict.Truncated > conflict.Committed {
		b.t.Errorf("the replica runs with %+v", *conflict)
	}
	b.ahead.start()
	<-time.After(5 * time.Second)
	if b.ahead.ended() {
		b.t.Error("the replica that stays out does not stay up")
	}
	if kinds := b.alarms()[b.ahead.id]; !slices.Contains(kinds, membership.AlarmHistoryConflict) {
		b.t.Errorf("the others report %v of it", kinds)
	}
	b.submit("after", 3, nil)
}

// All replicas that crash and start together have a leader within a second: the wait
// for all others ends when they have answered.
func TestAfterACrashOfAllALeaderIsElectedWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, calmLife())
		defer c.stopAll()
		c.awaitLeader()
		<-time.After(5 * time.Second) // everybody has the cluster's id
		for range 5 {
			c.kill(true, c.replicas...)
			for _, r := range c.replicas {
				r.start()
			}
			began := time.Now()
			c.awaitLeader()
			took := time.Since(began)
			t.Logf("a leader after %v", took)
			if took > time.Second {
				t.Errorf("a leader was elected after %v", took)
			}
			<-time.After(3 * time.Second)
		}
	})
}
