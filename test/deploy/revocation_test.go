//go:build linux

package deploy

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

const (
	// revokedAttempts is how many attempts a worker has when it is revoked.
	revokedAttempts = 1000
	// fullVariable selects what takes minutes, on a quiet machine: as many tokens as it takes
	// for a 99th percentile of 1,000 calls, waits for as many jobs as a call may have, and the
	// promised limit.
	fullVariable = "DTASK_REVOCATION"
	// rateVariable has how many tasks are submitted each second meanwhile; default
	// usualRate. A tenth of them must be stored so that the load proves something.
	rateVariable = "DTASK_REVOCATION_RATE"
	usualRate    = 1000
	// tokenLife is how long tokens are valid that expire: longer than the calls of as many as
	// expire at once take to open.
	tokenLife    = 6 * time.Second
	expireAtOnce = 8
	// endAtMost bounds the time in which each open call ends.
	endAtMost = time.Second
)

// rounds is how many tokens are revoked, and how many expire.
func rounds() int {
	if os.Getenv(fullVariable) == "full" {
		return 128 // of 9 calls each
	}
	return 8
}

// waitedJobs is how many jobs one of the open calls of a token waits for.
func waitedJobs() int {
	if os.Getenv(fullVariable) == "full" {
		return 10_000 // as many as a call may
	}
	return 1000
}

// loadRate is how many tasks are submitted each second.
func loadRate(t *testing.T) int {
	t.Helper()
	text := os.Getenv(rateVariable)
	if text == "" {
		return usualRate
	}
	rate, err := strconv.Atoi(text)
	clustertest.Must(t, err)
	return rate
}

// endLimit bounds the 99th percentile of the time in which open calls end.
func endLimit() time.Duration {
	if os.Getenv(fullVariable) == "full" {
		return 200 * time.Millisecond
	}
	return endAtMost // other programs may need the machine, too
}

// secured makes a cluster of three coordinators and the given workers with the documented
// commands, and logs in. It returns the join string of workers.
func secured(t *testing.T, workers ...string) (s *site, admin *client.Client, join string) {
	t.Helper()
	s = newSite(t, append([]string{"m1", "m2", "m3", "you"}, workers...)...)
	var joins []string
	for _, c := range commands(t, "docs/security.md", "## A secured cluster")[:4] {
		names := c.machines
		if slices.Contains(names, "w1") {
			names = workers
		}
		for _, name := range names {
			if printed := s.play(c, name, joins); joins == nil {
				joins = joinString.FindAllString(printed, -1)
			}
		}
	}
	credentials, err := client.TLS(filepath.Join(s.machines["m1"].data(), "tls", "ca.crt"))
	clustertest.Must(t, err)
	you := s.machines["you"]
	admin, err = client.New(client.Config{
		Addrs: []string{"m1:7460", "m2:7460", "m3:7460"}, Credentials: credentials, Dial: you.dial, Token: client.Secret(you.token()),
	})
	clustertest.Must(t, err)
	t.Cleanup(func() {
		if err := admin.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, admin, joins[1]
}

// parse is the job of a job file.
func parse(t *testing.T, text string) *dtaskv1.JobSpec {
	t.Helper()
	job, err := spec.Parse("job", []byte(text), spec.Options{})
	clustertest.Must(t, err)
	return job
}

// underLoad submits so many tasks each second until stop, which returns how many were
// stored each second.
func underLoad(t *testing.T, c *client.Client, rate int) (stop func() float64) {
	t.Helper()
	const every = 50 * time.Millisecond
	tasks := max(1, int(int64(rate)*int64(every)/int64(time.Second)))
	job := parse(t, fmt.Sprintf("version: 1\njob: {name: load, tasks: [{id: a, type: noop, array: {range: 0-%d}}]}", tasks-1))
	ctx, cancel := context.WithCancel(t.Context())
	var submitting sync.WaitGroup
	var stored atomic.Int64
	began := time.Now()
	submitting.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			submitting.Go(func() {
				if _, err := c.Submit(ctx, job, client.SubmitOptions{}); err == nil {
					stored.Add(int64(tasks))
				} else if ctx.Err() == nil {
					t.Errorf("a job of the load: %v", err)
				}
			})
		}
	})
	end := sync.OnceFunc(func() {
		cancel()
		submitting.Wait()
	})
	t.Cleanup(end)
	return func() float64 {
		rate := float64(stored.Load()) / time.Since(began).Seconds()
		end()
		return rate
	}
}

// quantile is the value that a part of the list does not exceed. The list is sorted.
func quantile(list []time.Duration, part float64) time.Duration {
	return list[min(len(list)-1, int(float64(len(list))*part))]
}

// report prints how long calls took to end, and fails above the limits. A stalled machine may
// take longer by what it has lost.
func report(t *testing.T, what string, took []time.Duration, lost time.Duration) {
	t.Helper()
	slices.Sort(took)
	p99, slowest := quantile(took, 0.99), took[len(took)-1]
	t.Logf("| %-28s | %4d calls | p50 %6s | p99 %6s | max %6s |", what, len(took),
		quantile(took, 0.5).Round(time.Millisecond), p99.Round(time.Millisecond), slowest.Round(time.Millisecond))
	if limit := endLimit() + lost; p99 > limit {
		t.Errorf("%s: the 99th percentile is %v, want at most %v", what, p99, limit)
	}
	if limit := endAtMost + lost; slowest > limit {
		t.Errorf("%s: the slowest of %d calls ended after %v, want at most %v", what, len(took), slowest, limit)
	}
}

// Watches, waits, logs, uploads and sessions end when their credential is revoked or
// expires, on each coordinator. Uploads leave nothing behind.
func TestOpenCallsEndWhenAccessEndsUnderLoad(t *testing.T) {
	s, admin, join := secured(t, "w1", "w2")
	ctx := t.Context()
	conns := make(map[string]*grpc.ClientConn)
	for _, name := range []string{"m1", "m2", "m3"} {
		conns[name] = s.connect(name, "")
	}
	held, err := admin.Submit(ctx, parse(t, `{version: 1, job: {name: held, tasks: [{id: held, run: "echo begun; sleep 600"}]}}`), client.SubmitOptions{})
	clustertest.Must(t, err)
	waited := append(unserved(t, admin, waitedJobs()-1), held.ID)
	wanted := loadRate(t)
	stalls, stop := clustertest.WatchStalls(t), underLoad(t, admin, wanted)
	names := 0
	open := func(leader string, calls *streams, ttl time.Duration) (*dtaskv1.Identity, error) {
		names++
		return s.openAll(calls, admin, conns, leader, waited, client.TokenOptions{Name: fmt.Sprintf("token-%d", names), TTL: ttl})
	}
	var expired, revoked, sessions []time.Duration
	for range rounds() / expireAtOnce {
		expired = append(expired, s.steadily(admin, func(leader string) (took []time.Duration, err error) {
			var list []*streams
			var ends []time.Time
			for range expireAtOnce {
				calls := newStreams(t)
				identity, err := open(leader, calls, tokenLife)
				if err != nil {
					return nil, err
				}
				list, ends = append(list, calls), append(ends, time.UnixMilli(identity.GetExpiresAt()))
			}
			for i, calls := range list {
				each, failed := calls.awaitEnd(ends[i])
				took, err = append(took, each...), errors.Join(err, failed)
			}
			return took, err
		})...)
	}
	for range rounds() {
		revoked = append(revoked, s.steadily(admin, func(leader string) ([]time.Duration, error) {
			calls := newStreams(t)
			identity, err := open(leader, calls, 0)
			if err != nil {
				return nil, err
			}
			return s.revoke(admin, identity, calls)
		})...)
		sessions = append(sessions, s.steadily(admin, func(leader string) ([]time.Duration, error) {
			names++
			calls := newStreams(t)
			identity := s.openSession(calls, leader, join, fmt.Sprintf("worker-%d", names))
			if err := calls.awaitReady(); err != nil {
				return nil, err
			}
			return s.revoke(admin, identity, calls)
		})...)
	}
	rate := stop()
	t.Logf("| load | %.0f tasks a second |", rate)
	if least := float64(wanted) / 10; rate < least {
		t.Errorf("the load was %.0f tasks a second, want at least %.0f", rate, least)
	}
	for what, took := range map[string][]time.Duration{"revoked token": revoked, "expired token": expired, "revoked worker": sessions} {
		report(t, what, took, stalls.Lost())
	}
	for job, err := range admin.Jobs(ctx, client.JobFilter{}) {
		clustertest.Must(t, err)
		if job.GetName() == uploaded {
			t.Errorf("an upload that was cut off left job %s", job.GetId())
		}
	}
}

// steadily measures how long calls take to end under one leader. A busy machine may elect
// another one meanwhile, which ends calls, too: then it measures again, a few times.
func (s *site) steadily(admin *client.Client, measure func(leader string) ([]time.Duration, error)) []time.Duration {
	s.t.Helper()
	for range 5 {
		leader, term := s.leader(admin)
		took, err := measure(leader)
		if _, now := s.leader(admin); now != term {
			s.t.Logf("the term changed from %d to %d: trying again (%v)", term, now, err)
			continue
		}
		clustertest.Must(s.t, err)
		return took
	}
	s.t.Fatal("no try without an election")
	return nil
}

// unserved submits jobs that no worker has the type for, and returns their ids.
func unserved(t *testing.T, c *client.Client, n int) []string {
	t.Helper()
	began := time.Now()
	job := client.Submission{Job: parse(t, "{version: 1, job: {name: unserved, tasks: [{id: a, type: unserved}]}}")}
	var ids []string
	for _, r := range c.SubmitMany(t.Context(), slices.Repeat([]client.Submission{job}, n)) {
		clustertest.Must(t, r.Err)
		ids = append(ids, r.ID)
	}
	t.Logf("| %d jobs to wait for | stored in %v |", n, time.Since(began).Round(time.Millisecond))
	return ids
}

// openAll makes a token of a submitter and opens calls with it. The last of the jobs runs the
// task held.
func (s *site) openAll(calls *streams, admin *client.Client, conns map[string]*grpc.ClientConn, leader string, jobs []string, opts client.TokenOptions) (*dtaskv1.Identity, error) {
	opts.Role = "submitter"
	token, identity, err := admin.CreateToken(s.t.Context(), opts)
	if err != nil {
		return nil, err
	}
	if err := calls.openAll(conns, leader, token, jobs); err != nil {
		return nil, err
	}
	return identity, calls.awaitReady()
}

// revoke revokes an identity, and returns how long its calls take to end.
func (s *site) revoke(admin *client.Client, identity *dtaskv1.Identity, calls *streams) ([]time.Duration, error) {
	began := time.Now()
	if _, err := admin.RevokeToken(s.t.Context(), identity.GetId()); err != nil {
		return nil, err
	}
	return calls.awaitEnd(began)
}

// leader returns the machine that leads, and its term.
func (s *site) leader(admin *client.Client) (name string, term uint64) {
	s.t.Helper()
	clustertest.Must(s.t, cluster.Until(s.t.Context(), "there is a leader", guard, func(ctx context.Context) error {
		status, err := admin.ClusterStatus(ctx)
		for _, m := range status.GetMembers() {
			if m.GetId() == status.GetLeader() {
				name, _, _ = strings.Cut(m.GetAddress(), ":")
				term = status.GetTerm()
				return err
			}
		}
		return errors.Join(err, errors.New("none"))
	}))
	return name, term
}

// openSession joins as a worker and opens a session on the leader.
func (s *site) openSession(calls *streams, leader, text, name string) *dtaskv1.Identity {
	s.t.Helper()
	join, err := client.ParseJoinString(client.Secret(text), "worker")
	clustertest.Must(s.t, err)
	dir := filepath.Join(s.dir, name)
	clustertest.Must(s.t, os.Mkdir(dir, 0o700))
	conn := s.connect(leader, dir) // makes the key
	joined, err := client.Join(s.t.Context(), client.Config{Dial: s.machines["you"].dial}, client.JoinOptions{String: join, Name: name, KeyHash: keyHash(s.t, dir)})
	clustertest.Must(s.t, err)
	calls.openSession(conn, name, joined.Cluster)
	return joined.Identity
}

// A revoked worker with a thousand attempts loses them to another one at once:
// each has one accepted completion, which is not the revoked worker's.
func TestTheAttemptsOfARevokedWorkerAreGivenToOthers(t *testing.T) {
	const tasks = revokedAttempts
	s, admin, join := secured(t)
	ctx := t.Context()
	you := s.machines["you"]
	first := you.start("first", "dtask-worker --join "+join+" --name first --work-dir first --slots "+strconv.Itoa(tasks))
	s.await(first, "session opened")
	job := parse(t, fmt.Sprintf(`{version: 1, job: {name: moves, tasks: [{id: a, type: sleep, payload: "5s", array: {range: 0-%d}}]}}`, tasks-1))
	stored, err := admin.Submit(ctx, job, client.SubmitOptions{})
	clustertest.Must(t, err)
	s.awaitHeld(admin, stored.ID, "first", tasks)
	second := you.start("second", "dtask-worker --join "+join+" --name second --work-dir second --slots "+strconv.Itoa(tasks))
	s.await(second, "session opened")

	began := time.Now()
	you.must("dtaskctl token revoke " + s.identity("first"))
	s.awaitHeld(admin, stored.ID, "second", tasks)
	t.Logf("| %d attempts of a revoked worker → held by another | %7s |", tasks, time.Since(began).Round(time.Millisecond))
	done, err := admin.Wait(ctx, stored.ID)
	clustertest.Must(t, err)
	if done.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED || done.GetTasksCompleted() != tasks {
		t.Errorf("got %v, want %d completed tasks", done, tasks)
	}
	for task, err := range admin.Tasks(ctx, stored.ID, client.TaskFilter{}) {
		clustertest.Must(t, err)
		if task.GetWorker() != "second" || task.GetAttempt() < 2 {
			t.Fatalf("%s: attempt %d on %s is %s, want a later one, on the second worker", task.GetId(), task.GetAttempt(), task.GetWorker(), task.GetState())
		}
	}
}

// awaitHeld waits until a worker holds all tasks of a job.
func (s *site) awaitHeld(c *client.Client, job, worker string, tasks int) {
	s.t.Helper()
	clustertest.Must(s.t, cluster.Until(s.t.Context(), "the tasks are on "+worker, guard, func(ctx context.Context) error {
		held := 0
		for task, err := range c.Tasks(ctx, job, client.TaskFilter{}) {
			if err != nil {
				return err
			}
			if task.GetWorker() == worker && task.GetState() != dtaskv1.TaskState_TASK_STATE_PENDING {
				held++
			}
		}
		if held < tasks {
			return errors.New(strconv.Itoa(held) + " are")
		}
		return nil
	}))
}

// keyHash is how a cluster knows the key of a worker.
func keyHash(t *testing.T, dir string) [32]byte {
	t.Helper()
	pair, err := tlsconf.OpenWorkerKey(dir)
	clustertest.Must(t, err)
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	clustertest.Must(t, err)
	return tlsconf.KeyHash(cert)
}
