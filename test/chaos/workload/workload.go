package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/chaos/check"
	"github.com/dtask/dtask/test/chaos/history"
	"github.com/dtask/dtask/test/cluster"
)

// Config describes the traffic.
type Config struct {
	Seed    uint64
	Clients int
	// Client is how clients reach the cluster, and Env the environment of dtaskctl for the
	// same.
	Client   client.Config
	Env      []string
	Programs cluster.Programs
	Ledger   string // path
	// Workers is how many there are, named w1 and so on. They have the labels of Labels, and,
	// with Shifts, those of the function of that name.
	Workers  int
	Shifts   bool
	Recorder *history.Recorder
	// Dial connects a client; nil connects directly.
	Dial func(ctx context.Context, number int, addr string) (net.Conn, error)
	// Patience is how long a call is retried without a leader before its outcome is
	// unknown. Default 8 s.
	Patience time.Duration
	// Pause is the maximum delay of a client between two jobs. Default 400 ms.
	Pause time.Duration
	// Handovers makes the traffic many short tasks with limits, and nothing else.
	Handovers bool
}

// A Workload is the traffic of one run.
type Workload struct {
	cfg     Config
	clients []*client.Client

	acked, tasks, unknown, completed atomic.Int64
	probes, killed                   atomic.Int64

	mu      sync.Mutex // guards all below
	plans   []check.Plan
	latest  []submitted   // acknowledged jobs, the newest last
	second  map[int64]int // second of the run → successful calls
	began   time.Time
	problem error // an error of the suite itself
}

// New makes the clients. The caller calls Close.
func New(cfg Config) (*Workload, error) {
	if cfg.Patience == 0 {
		cfg.Patience = 8 * time.Second
	}
	if cfg.Pause == 0 {
		cfg.Pause = 400 * time.Millisecond
	}
	w := &Workload{cfg: cfg, second: make(map[int64]int), began: time.Now()}
	for i := range cfg.Clients {
		settings := w.settings()
		if cfg.Dial != nil {
			settings.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return cfg.Dial(ctx, i, addr) }
		}
		c, err := client.New(settings)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("creating client %d: %w", i, err), w.Close())
		}
		w.clients = append(w.clients, c)
	}
	return w, nil
}

// settings are those of a client that waits for a leader as long as all others do.
func (w *Workload) settings() client.Config {
	settings := w.cfg.Client
	settings.Timeout = w.cfg.Patience
	return settings
}

// Close closes the clients.
func (w *Workload) Close() error {
	var errs []error
	for _, c := range w.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Run lets all clients work until the given time, and waits for the jobs in progress
// until ctx is done.
func (w *Workload) Run(ctx, until context.Context) error {
	if w.cfg.Handovers {
		return w.runHandovers(ctx, until)
	}
	var group sync.WaitGroup
	if len(w.clients) > 0 {
		o := &operator{w: w, random: rand.New(rand.NewPCG(w.cfg.Seed, operatorNumber))}
		if err := o.prepare(until); err != nil {
			return err
		}
		group.Go(func() { o.run(ctx, until) })
		s := newTimekeeper(w)
		if err := s.prepare(until); err != nil {
			return err
		}
		group.Go(func() { s.run(ctx, until) })
		a, err := newAsker(w)
		if err != nil {
			return err
		}
		group.Go(func() { a.run(until) })
	}
	for i, c := range w.clients {
		random := rand.New(rand.NewPCG(w.cfg.Seed, uint64(1000+i)))
		one := &user{w: w, c: c, number: i, random: random, shapes: shapes()}
		group.Go(func() { one.run(ctx, until) })
	}
	number := len(w.clients)
	others := func(many int, shapes []shape) {
		for i := range min(many, len(w.clients)) {
			one := &user{w: w, c: w.clients[i], number: number, random: rand.New(rand.NewPCG(w.cfg.Seed, uint64(1000+number))), shapes: shapes}
			group.Go(func() { one.run(ctx, until) })
			number++
		}
	}
	others(limitedUsers, limitedShapes())
	for _, shapes := range ratedUsers() {
		others(1, shapes)
	}
	others(gatedUsers, gatedShapes())
	for _, shapes := range crampedUsers() {
		others(1, shapes)
	}
	group.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

// Plans returns all jobs that clients tried to submit so far.
func (w *Workload) Plans() []check.Plan {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.plans)
}

// Tally counts what was done so far.
type Tally struct {
	Jobs, Tasks int64 // acknowledged
	Ended       int64 // jobs whose end was observed
	Unknown     int64 // calls
}

// Tally returns the counts.
func (w *Workload) Tally() Tally {
	return Tally{Jobs: w.acked.Load(), Tasks: w.tasks.Load(), Ended: w.completed.Load(), Unknown: w.unknown.Load()}
}

// Calls returns how many calls have succeeded so far.
func (w *Workload) Calls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := 0
	for _, n := range w.second {
		sum += n
	}
	return sum
}

func (w *Workload) plan(p check.Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plans = append(w.plans, p)
}

func (w *Workload) broken(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.problem == nil {
		w.problem = err
	}
}

// call records a call. The error that do returns decides the verdict.
func (w *Workload) call(c history.Call, do func(*history.Call) error) (history.Call, error) {
	c = w.cfg.Recorder.Begin(c)
	err := do(&c)
	c.Verdict = history.OK
	if err != nil {
		c.Error = err.Error()
		c.Verdict, c.Reason = verdict(err)
	}
	w.cfg.Recorder.End(c)
	switch c.Verdict {
	case history.OK:
		w.mu.Lock()
		w.second[int64(time.Since(w.began)/time.Second)]++
		w.mu.Unlock()
	case history.Unknown:
		w.unknown.Add(1)
	case history.Fail:
	}
	return c, err
}

// verdict maps an error of a client to the call's effect.
func verdict(err error) (history.Verdict, string) {
	reason := history.Other
	switch {
	case errors.Is(err, client.ErrNotFound):
		reason = history.NotFound
	case errors.Is(err, client.ErrConflict):
		reason = history.Conflict
		if strings.Contains(err.Error(), "rule for overlaps") {
			reason = history.Other // of concurrency keys; the idempotency key belongs to no other job
		}
	}
	detail, ok := errors.AsType[*client.Error](err)
	if !ok || detail.Unknown || detail.Kind == nil {
		return history.Unknown, ""
	}
	return history.Fail, reason
}

// Finals reads all jobs of the cluster with their tasks.
func (w *Workload) Finals(ctx context.Context) ([]check.Final, error) {
	c := w.clients[0]
	var finals []check.Final
	for job, err := range c.Jobs(ctx, client.JobFilter{}) {
		if err != nil {
			return nil, fmt.Errorf("listing jobs: %w", err)
		}
		f := check.Final{ID: job.GetId(), Name: job.GetName(), State: jobState(job), Completed: int(job.GetTasksCompleted())}
		if run := job.GetRun(); run != nil {
			f.Run = &check.TickRun{ID: run.GetScheduleId(), At: run.GetTickMs()}
		}
		for t, err := range c.Tasks(ctx, f.ID, client.TaskFilter{History: true}) {
			if err != nil {
				return nil, fmt.Errorf("listing the tasks of job %s: %w", f.ID, err)
			}
			f.Tasks = append(f.Tasks, check.FinalTask{
				ID: t.GetId(), State: taskState(t), Attempt: int(t.GetAttempt()), Worker: t.GetWorker(), Error: t.GetError(), Preempted: preemptions(t),
			})
		}
		finals = append(finals, f)
	}
	return finals, nil
}

var jobStates = map[dtaskv1.JobState]string{
	dtaskv1.JobState_JOB_STATE_UNSPECIFIED: "unspecified", dtaskv1.JobState_JOB_STATE_PENDING: "pending",
	dtaskv1.JobState_JOB_STATE_RUNNING: "running", dtaskv1.JobState_JOB_STATE_COMPLETED: "completed",
	dtaskv1.JobState_JOB_STATE_FAILED: "failed", dtaskv1.JobState_JOB_STATE_CANCELLED: "cancelled",
}

func jobState(j *dtaskv1.Job) string { return jobStates[j.GetState()] }

var taskStates = map[dtaskv1.TaskState]string{
	dtaskv1.TaskState_TASK_STATE_UNSPECIFIED: "unspecified", dtaskv1.TaskState_TASK_STATE_BLOCKED: "blocked",
	dtaskv1.TaskState_TASK_STATE_SCHEDULED: "scheduled", dtaskv1.TaskState_TASK_STATE_PENDING: "pending",
	dtaskv1.TaskState_TASK_STATE_ASSIGNED: "assigned", dtaskv1.TaskState_TASK_STATE_RUNNING: "running",
	dtaskv1.TaskState_TASK_STATE_COMPLETED: "completed", dtaskv1.TaskState_TASK_STATE_AGGREGATED: "aggregated",
	dtaskv1.TaskState_TASK_STATE_FAILED: "failed", dtaskv1.TaskState_TASK_STATE_CANCELLED: "cancelled",
	dtaskv1.TaskState_TASK_STATE_DEAD: "dead", dtaskv1.TaskState_TASK_STATE_LOST: "lost",
}

func taskState(t *dtaskv1.Task) string { return taskStates[t.GetState()] }

// Probe submits a small job, bypassing all broken links, and returns when it has
// completed.
func (w *Workload) Probe(ctx context.Context) error {
	c, err := client.New(w.settings())
	if err != nil {
		return fmt.Errorf("creating client: %w", err)
	}
	defer func() { _ = c.Close() }()
	n := w.probes.Add(1)
	u := &user{w: w, c: c, number: proberNumber, random: rand.New(rand.NewPCG(w.cfg.Seed, uint64(n)))}
	job, plan, err := w.build(u.random, shape{name: "probe", make: diamond}, fmt.Sprintf("probe-%d", n), fmt.Sprintf("probe-%d-%d", w.cfg.Seed, n))
	if err != nil {
		return err
	}
	w.plan(plan)
	for ctx.Err() == nil {
		id := u.submit(ctx, job, plan)
		if id == "" {
			continue
		}
		w.acked.Add(1)
		w.tasks.Add(int64(len(plan.Tasks)))
		return awaitEnd(ctx, c, id)
	}
	return fmt.Errorf("submitting a small job: %w", context.Cause(ctx))
}

// awaitEnd waits for the end of a job until ctx ends, also while no coordinator answers: the
// client gives up before.
func awaitEnd(ctx context.Context, c *client.Client, id string) error {
	for {
		_, err := c.Wait(ctx, id)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, client.ErrUnreachable) || ctx.Err() != nil:
			return fmt.Errorf("waiting for job %s: %w", id, err)
		}
	}
}

// proberNumber and the others are client numbers outside the range of the others.
const (
	proberNumber     = 1000
	killedNumber     = 1001
	operatorNumber   = 1002
	timekeeperNumber = 1003
	askerNumber      = 1004
)

// Killed starts dtaskctl to submit a job, and kills it after a delay.
func (w *Workload) Killed(ctx context.Context, dir string, after time.Duration) error {
	n := w.killed.Add(1)
	random := rand.New(rand.NewPCG(w.cfg.Seed, uint64(n)))
	name, key := fmt.Sprintf("killed-%d", n), fmt.Sprintf("killed-%d-%d", w.cfg.Seed, n)
	_, plan, err := w.build(random, shape{name: "killed", make: fan}, name, key)
	if err != nil {
		return err
	}
	w.plan(plan)
	path := filepath.Join(dir, name+".json")
	if err := os.WriteFile(path, []byte(w.file(random, shape{name: "killed"}, plan)), 0o600); err != nil {
		return fmt.Errorf("writing job file: %w", err)
	}
	p := cluster.NewProcess(name, dir, w.cfg.Programs.Path("dtaskctl"), []string{
		"--addr", strings.Join(w.cfg.Client.Addrs, ","), "submit", path, "--idempotency-key", key, "--wait", "-o", "json",
	}, w.cfg.Env)
	_, _ = w.call(history.Call{Client: killedNumber, Kind: history.Submit, Key: key, Body: plan.Body, Tasks: len(plan.Tasks)}, func(*history.Call) error {
		if err = p.Start(ctx); err == nil {
			_ = cluster.Pause(ctx, after)
			err = p.Kill()
		}
		return errKilled
	}) // recorded as unknown
	if err != nil {
		return fmt.Errorf("killing client: %w", err)
	}
	return nil
}

// errKilled is the error of a call whose client was killed.
var errKilled = errors.New("client killed")

func openStates() []dtaskv1.JobState {
	return []dtaskv1.JobState{dtaskv1.JobState_JOB_STATE_PENDING, dtaskv1.JobState_JOB_STATE_RUNNING}
}

// Open returns the number of jobs that have not ended. Those are cancelled that would start
// only much later: they were submitted under a leader whose clock was wrong.
func (w *Workload) Open(ctx context.Context) (int, error) {
	c, err := client.New(w.settings())
	if err != nil {
		return 0, fmt.Errorf("creating client: %w", err)
	}
	defer func() { _ = c.Close() }()
	n := 0
	u := &user{w: w, c: c, number: timekeeperNumber}
	for job, err := range c.Jobs(ctx, client.JobFilter{States: openStates()}) {
		if err != nil {
			return 0, fmt.Errorf("listing jobs: %w", err)
		}
		if job.GetScheduledUntil() > time.Now().Add(time.Minute).UnixMilli() {
			_ = u.cancelOnce(ctx, job.GetId(), "") // the caller tries again
		}
		n++
	}
	return n, nil
}
