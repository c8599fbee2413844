package simulation_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator/membership"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

var oldCopies = flag.Int("cluster.copies", 8, "number of old copies of data directories, each in a cluster of its own")

// TestAnOldCopyOfADiskIsLoudOrSafe (F49) brings back an old copy of a replica's data
// directory, combined with the loss of other replicas before and at the same instant,
// with disks that stall, with restarts one after another, and with every other fault of
// the table before and after. Either no acknowledged job is lost, or the product has
// reported the replica before a client can notice the loss.
func TestAnOldCopyOfADiskIsLoudOrSafe(t *testing.T) {
	t.Parallel()
	rounds := *oldCopies
	if testing.Short() {
		rounds = min(rounds, 4)
	}
	outcomes := make(map[string]int)
	for i := range rounds {
		seed := max(*clusterSeed, 1) + uint64(i) //nolint:gosec // not negative
		l := calmLife()
		l.store = []string{"bolt", "wal"}[seed%2]
		var s survey
		outcome := ""
		synctest.Test(t, func(t *testing.T) {
			s = survey{c: newCluster(t, seed, l), acked: make(map[string]ack)}
			outcome = s.run()
			s.c.stopAll()
		})
		kind, _, _ := strings.Cut(outcome, ":")
		outcomes[kind]++
		if kind == silent {
			t.Errorf("seed %d, %s: %s\nreplay: go test ./test/simulation -count=1 -short -run %s -cluster.seed=%d", seed, s.plan, outcome, t.Name(), seed)
		}
	}
	t.Logf("%d old copies: %v", rounds, outcomes)
}

// learningTime is how long after its acknowledgment a job may be known as committed to a
// single replica only: the others learn of the commit with the next entry or heartbeat,
// and store that within a second (docs/guarantees.md).
const learningTime = 1500 * time.Millisecond

// silent is the outcome that must not happen.
const silent = "silent"

// ack is an acknowledged job.
type ack struct {
	name string
	at   time.Time
}

// survey is what a client of a cluster sees that runs on an old copy.
type survey struct {
	c     *cluster
	plan  string         // what was done, for messages
	acked map[string]ack // by job
	sure  time.Time      // jobs that were acknowledged learningTime before this count
	next  int            // number of the next job
	loud  string         // how the product has reported the replica; "": it has not
}

// run does it and returns the outcome: safe, loud or silent, and how.
func (s *survey) run() string {
	c := s.c
	c.awaitLeader()
	s.submit(time.Second + c.upTo(3*time.Second))
	victim, old := c.replicas[c.rng.IntN(replicaCount)], filepath.Join(c.dir, "old")
	synctest.Wait()
	if err := copyTree(victim.process.dir, old); err != nil {
		c.t.Fatal(err)
	}
	s.plan = victim.id + " copied"
	s.submit(c.upTo(4 * time.Second))
	s.sure = time.Now()
	if c.likely() {
		s.fault()
	} else {
		s.sure = time.Time{}
	}

	other := c.replicas[c.rng.IntN(replicaCount)]
	absent := other != victim && c.rng.IntN(3) > 0
	if absent {
		c.kill(c.likely(), other)
		s.plan += ", " + other.id + " killed"
	}
	s.submit(500*time.Millisecond + c.upTo(4*time.Second))
	lost := []*replica{victim}
	for _, r := range c.replicas {
		if r != victim && (!absent || r != other) && c.rng.IntN(4) > 0 {
			lost = append(lost, r)
		}
	}
	end := func() {}
	if c.likely() {
		_, end = lost[c.rng.IntN(len(lost))].disk.stall(entryWrites)
		s.submit(c.upTo(300 * time.Millisecond))
		s.plan += ", a disk stalled"
	}
	if s.sure.IsZero() {
		s.sure = time.Now()
	}
	c.kill(c.likely(), lost...)
	if err := errors.Join(os.RemoveAll(victim.process.image), os.Rename(old, victim.process.image)); err != nil {
		c.t.Fatal(err)
	}
	end()
	c.hasOldCopy = true
	if absent {
		lost = append(lost, other)
	}
	most := []time.Duration{300 * time.Millisecond, time.Second, 5 * time.Second, 10 * time.Second}[c.rng.IntN(4)]
	for _, i := range c.rng.Perm(len(lost)) {
		if wait := c.upTo(most); i > 0 {
			s.plan += fmt.Sprintf(", %v,", wait.Round(time.Millisecond))
			<-time.After(wait)
		}
		lost[i].disk.heal()
		lost[i].start()
		s.plan += " " + lost[i].id + " started"
	}
	if c.likely() {
		s.listen()
		s.fault()
	}
	return s.watch()
}

// fault does any fault of the table and ends it. What follows may keep replicas from
// learning that entries are committed.
func (s *survey) fault() {
	f := faults[s.c.rng.IntN(len(faults))]
	s.plan += ", " + f.kind
	f.do(s.c)
	s.listen() // before a replica that has ended is replaced
	s.c.heal()
	s.plan += ","
}

// submit submits jobs, which no worker can run, for a time.
func (s *survey) submit(length time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	for ctx.Err() == nil {
		s.next++
		name := fmt.Sprint("job-", s.next)
		job := &dtaskv1.JobSpec{
			Header: &dtaskv1.JobHeader{
				Name: name, Priority: dtaskv1.Priority_PRIORITY_NORMAL, OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP,
				Policies: []*dtaskv1.TaskPolicy{{Type: "nobody", TimeoutMs: 60_000, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE, Retry: &dtaskv1.RetryPolicy{}}},
			},
			Tasks: []*dtaskv1.TaskSpec{{Id: "t", Body: &dtaskv1.TaskBody{}}},
		}
		if got, err := s.c.client.Submit(ctx, job, client.SubmitOptions{Key: name}); err == nil {
			s.acked[got.ID] = ack{name, time.Now()}
		}
		select {
		case <-time.After(s.c.upTo(400 * time.Millisecond)):
		case <-ctx.Done():
		}
	}
}

// watch reads all jobs and all alarms repeatedly until a loss is seen, or for a minute.
func (s *survey) watch() string {
	available := false
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(3 * time.Second) {
		s.listen() // before a replica that has ended is replaced
		for _, r := range s.c.replicas {
			if r.ended() && !r.process.aside.Load() {
				r.start()
			}
		}
		missing, err := s.missing()
		available = err == nil
		if missing == "" {
			continue
		}
		if s.loud == "" {
			return silent + ": " + missing
		}
		return "loud: " + s.loud
	}
	switch {
	case available:
		return "safe"
	case s.loud == "":
		return silent + ": no leader"
	}
	return "unavailable: " + s.loud
}

// listen collects what the product has reported.
func (s *survey) listen() {
	for _, r := range s.c.replicas {
		switch {
		case r.process.aside.Load():
			s.loud = "quarantined"
		case r.process.refuses.Load():
			s.loud = "refused"
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	status, err := s.c.client.ClusterStatus(ctx)
	if err != nil {
		return
	}
	for _, a := range status.GetAlarms() {
		if kind := a.GetKind(); kind == membership.AlarmHistoryConflict || kind == membership.AlarmUnverifiedDirectory {
			s.loud = kind
		}
	}
}

// missing returns a job that the cluster lacks; "" if none. Jobs that were acknowledged
// just before the directory was replaced don't count. It returns an error if the cluster
// doesn't answer.
func (s *survey) missing() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	for id, a := range s.acked {
		if s.sure.Sub(a.at) < learningTime {
			continue
		}
		got, err := s.c.client.Job(ctx, id, client.ReadOptions{})
		switch {
		case errors.Is(err, client.ErrNotFound):
			return a.name + ", job " + id, nil
		case err != nil:
			return "", err
		case got.GetName() != a.name:
			return fmt.Sprintf("%s, job %s, which is %s now", a.name, id, got.GetName()), nil
		}
	}
	return "", nil
}
