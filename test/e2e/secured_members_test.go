package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
)

const (
	// membersBatch is how many tasks a job has while members change.
	membersBatch = 200
	// membersWorkMS is how long each of them works, in milliseconds.
	membersWorkMS = 25
	// membersWorkers is how many workers there are, of membersSlots slots each.
	membersWorkers, membersSlots = 2, 16
)

// addMarkWorkers starts workers that join with the string of workers, and returns the
// ledger that their tasks write to.
func (s *secured) addMarkWorkers() (book string) {
	s.t.Helper()
	book, join := filepath.Join(s.dir, "ledger"), filepath.Join(s.dir, "worker.join")
	clustertest.Must(s.t, os.WriteFile(join, []byte(s.worker), 0o600))
	for i := range membersWorkers {
		name := fmt.Sprintf("w%d", i+1)
		s.await(s.process(name, cluster.MarkWorker, "--join", "@"+join, "--name", name, "--slots", fmt.Sprint(membersSlots),
			"--work-dir", s.data("work-"+name), "--ledger", book), "session opened")
	}
	return book
}

// markJob is a job of independent tasks that write to the ledger.
func markJob() string {
	tasks := make([]cluster.TaskFile, membersBatch)
	for i := range tasks {
		tasks[i] = cluster.Builtin(fmt.Sprintf("t%d", i), cluster.MarkType, fmt.Sprintf(`{"work_ms":%d}`, membersWorkMS))
	}
	return cluster.JobFile("load", tasks...)
}

// votersAre waits until the members are exactly the given ones, and all are voters that
// answer.
func (s *secured) votersAre(want ...string) {
	s.t.Helper()
	slices.Sort(want)
	clustertest.Must(s.t, cluster.Until(s.t.Context(), fmt.Sprintf("%q are the voters", want), guard, func(ctx context.Context) error {
		status, err := s.Status(ctx)
		var have []string
		for _, m := range status.Members {
			if m.Voter && m.State != "unreachable" {
				have = append(have, m.ID)
			}
		}
		slices.Sort(have)
		if status.Leader == "" || len(status.Members) != len(want) || !slices.Equal(have, want) {
			err = errors.Join(err, fmt.Errorf("leader %q, members %+v", status.Leader, status.Members))
		}
		return err
	}))
}

// votes starts the next coordinator with dtaskd join, and waits until it has a vote.
func (s *secured) votes(args ...string) {
	s.t.Helper()
	s.coordinator(append([]string{"join", s.joinString("coordinator")}, args...)...)
	s.await(s.nodes[len(s.nodes)-1], "has a vote")
}

// A secured cluster grows to five, changes its leader, has the machine of the leader replaced
// by a new one, and shrinks to three, while jobs run: no task is lost, runs twice or fails.
func TestMembersOfASecuredClusterChangeUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newSecured(t, 3)
	book := s.addMarkWorkers()
	load := s.loadOf(membersBatch, markJob())
	ctl := func(args ...string) {
		t.Helper()
		clustertest.Must(t, s.Run(ctx, args...).Err())
	}

	s.votes()
	s.votes()
	s.votersAre("n1", "n2", "n3", "n4", "n5")
	stalls := clustertest.WatchStalls(t)
	ctl("cluster", "transfer-leader", "n5")
	if leader := s.nodes[s.leader()].Name; leader != "n5" && stalls.Lost() == 0 {
		t.Errorf("got leader %s, want n5", leader)
	}

	lost := s.leader()
	clustertest.Must(t, s.nodes[lost].Kill())
	s.votes("--replace", s.nodes[lost].Name)
	left := []string{"n1", "n2", "n3", "n4", "n5", "n6"}
	left = slices.DeleteFunc(left, func(id string) bool { return id == s.nodes[lost].Name })
	s.votersAre(slices.Clone(left)...)

	for range 2 { // the leader first: it transfers leadership
		removed := s.leader()
		ctl("cluster", "remove", s.nodes[removed].Name)
		s.await(s.nodes[removed], "was removed from the cluster")
		left = slices.DeleteFunc(left, func(id string) bool { return id == s.nodes[removed].Name })
	}
	s.votersAre(slices.Clone(left)...)

	tasks, longest := load.end()
	t.Logf("%d tasks; longest time without a completion: %v", tasks, longest)
	jobs := make([]ledger.Job, len(load.jobs))
	for i, job := range load.jobs {
		jobs[i] = judged(job, nil)
	}
	lines, err := ledger.Read(book)
	clustertest.Must(t, err)
	for _, fault := range ledger.Check(lines, jobs, nil) {
		t.Error(fault)
	}
}
