package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
)

const (
	workers = 3
	slots   = 2 // of each worker
	// endLimit is a guard against hanging; the job takes seconds.
	endLimit = 20 * time.Minute
)

// demo is one run.
type demo struct {
	options
	*story

	cluster *cluster.Cluster
	files   []file
	groups  [][]file
	tasks   int
	outputs string // directory
}

// failover is what was seen of the leader's death.
type failover struct {
	killed   time.Time
	answered time.Duration // from the kill until a new leader answered a read
	gap      cluster.Gap
	left     bool // a map was left to complete
	old      string
}

// prepare finds the files and lays everything out; it starts nothing.
func (d *demo) prepare(ctx context.Context) error {
	var err error
	if d.files, err = sources(d.source, d.skip...); err != nil {
		return err
	}
	d.groups = split(d.files, max(d.options.groups, 2))
	d.cluster, err = cluster.New(ctx, cluster.Config{
		Workers: workers, Slots: slots,
		// The workers' logs are the witness of what was executed.
		WorkerFlags: []string{"--log-level", "debug", "--log-format", "json"},
	})
	return err //nolint:wrapcheck // says what it did
}

// play runs the whole demo and returns an error if anything was not as it must
// be.
func (d *demo) play(ctx context.Context) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	job, observer, fail, err := d.killDuringAJob(ctx)
	if observer != nil {
		defer observer.Stop()
	}
	if err != nil {
		return err
	}
	ended, err := d.finish(ctx, job, observer, fail)
	if err != nil {
		return err
	}
	observer.Stop()
	fail.gap, fail.left = cluster.GapAround(d.mapsOf(observer.Seen()), fail.killed)
	if err := d.comeBack(ctx, fail.old); err != nil {
		return err
	}
	return d.judge(ended, fail)
}

// errTooLate is returned when the maps of a job were done before the leader was killed.
var errTooLate = errors.New("the maps were done when the leader was to be killed half way")

// maxJobs is how many jobs are submitted until the leader dies in the middle of one. This
// process may stand still for seconds on a busy machine.
const maxJobs = 5

// killDuringAJob submits jobs until the leader is killed in the middle of one.
func (d *demo) killDuringAJob(ctx context.Context) (job string, o *cluster.Observer, fail failover, err error) {
	for tries := 1; ; tries++ {
		if job, err = d.submit(ctx, tries); err != nil {
			return job, o, fail, err
		}
		o = d.cluster.Observe(ctx, job)
		fail, err = d.killHalfWay(ctx, job, o)
		if !errors.Is(err, errTooLate) || tries == maxJobs {
			return job, o, fail, err
		}
		d.tell("%v: another job.", err)
		if _, err := d.cluster.AwaitEnd(ctx, job, endLimit); err != nil {
			return job, o, fail, err //nolint:wrapcheck // says what it did
		}
		o.Stop()
	}
}

// mapsOf returns the completions of map tasks. Reduce tasks come after them and take much
// longer, whatever happens to a leader.
func (d *demo) mapsOf(seen []cluster.Completion) []cluster.Completion {
	after := slices.IndexFunc(seen, func(c cluster.Completion) bool { return c.Completed > len(d.groups) })
	if after < 0 {
		return seen
	}
	return seen[:after]
}

func (d *demo) begin(ctx context.Context) error {
	var bytes int64
	for _, f := range d.files {
		bytes += f.size
	}
	d.chapter("A cluster")
	d.tell("Starting three coordinators, n1 n2 n3, which agree on everything through a replicated log,")
	d.tell("and three workers, w1 w2 w3, with %d slots each: six processes on this machine.", slots)
	if err := d.cluster.Start(ctx); err != nil {
		return err
	}
	leader, err := d.cluster.AwaitLeader(ctx)
	if err != nil {
		return err
	}
	d.tell("They elected a leader: %s. It alone decides which worker runs what; the others know all it knows.", leader.Name)
	d.chapter("A job")
	d.tell("Count the words in the %s .go files (%s MB) below %s:", count(len(d.files)), count(uint64(bytes/1_000_000)), d.source) //nolint:gosec // a size
	d.tell("%d map tasks count some files each, %d reduce tasks add up what maps counted, one more adds up those.",
		len(d.groups), min(reducers, len(d.groups)))
	return nil
}

// submit submits the job with dtaskctl, as a user would.
func (d *demo) submit(ctx context.Context, number int) (string, error) {
	d.outputs = filepath.Join(d.cluster.Dir, fmt.Sprint("out", number))
	if err := os.Mkdir(d.outputs, 0o755); err != nil {
		return "", fmt.Errorf("making the directory for outputs: %w", err)
	}
	tasks := plan(d.groups, d.outputs)
	d.tasks = len(tasks)
	path := filepath.Join(d.cluster.Dir, fmt.Sprintf("job%d.json", number))
	if err := writeJob(path, tasks); err != nil {
		return "", err
	}
	answer := d.cluster.Run(ctx, "submit", path, "-o", "json")
	if err := answer.Err(); err != nil {
		return "", err
	}
	var submitted struct {
		ID string `json:"id"`
	}
	if err := answer.Into(&submitted); err != nil {
		return "", err
	}
	d.tell("$ dtaskctl submit %s", path)
	d.quote(answer.Stderr + "job " + submitted.ID + " submitted")
	return submitted.ID, nil
}

// killHalfWay kills the leader when half of the maps are done, and waits until another
// one answers a read. A read is linearizable: only a leader that a majority has confirmed
// answers it.
func (d *demo) killHalfWay(ctx context.Context, job string, o *cluster.Observer) (failover, error) {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	reader, err := d.cluster.Client()
	if err != nil {
		return failover{}, err //nolint:wrapcheck // says what it did
	}
	defer func() { _ = reader.Close() }()
	if _, err := reader.Job(ctx, job, client.ReadOptions{}); err != nil { // it is connected to the leader
		return failover{}, err //nolint:wrapcheck // says what it did
	}
	maps := len(d.groups)
	for _, share := range []int{10, 25} {
		if _, err := o.Await(ctx, maps*share/100); err != nil {
			return failover{}, err
		}
		d.tell("%d of %d maps are done.", maps*share/100, maps)
	}
	leader, err := d.cluster.AwaitLeader(ctx)
	if err != nil {
		return failover{}, err
	}
	last, err := o.Await(ctx, maps/2)
	if err != nil {
		return failover{}, err
	}
	if last = newest(o, last); last.Completed >= maps {
		return failover{}, fmt.Errorf("%w: %d of %d", errTooLate, last.Completed, maps)
	}
	killed := time.Now()
	if err := leader.Kill(); err != nil {
		return failover{}, err
	}
	if _, err := reader.Job(ctx, job, client.ReadOptions{}); err != nil {
		return failover{}, err //nolint:wrapcheck // says what it did
	}
	answered := time.Since(killed)
	d.chapter("The leader dies")
	d.tell("%d of %d maps are done: kill -9 of the leader, %s (process %d).", last.Completed, maps, leader.Name, leader.Pid())
	d.tell("The workers keep running their tasks, and keep the results until a leader has acknowledged them.")
	d.tell("After %s another leader answered.", millis(answered))
	return failover{killed: killed, answered: answered, old: leader.Name}, nil
}

// newest is the last completion of a job so far.
func newest(o *cluster.Observer, last cluster.Completion) cluster.Completion {
	if seen := o.Seen(); len(seen) > 0 {
		return seen[len(seen)-1]
	}
	return last
}

// finish waits for the next leader and the end of the job.
func (d *demo) finish(ctx context.Context, job string, o *cluster.Observer, fail failover) (cluster.Job, error) {
	leader, err := d.cluster.AwaitLeaderOtherThan(ctx, d.cluster.Coordinator(fail.old))
	if err != nil {
		return cluster.Job{}, err
	}
	limited, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	d.tell("The two that are left elected %s. It looked through what it knows, and the workers told it what they run and did.", leader.Name)
	maps := len(d.groups)
	for _, share := range []int{75, 100} {
		if _, err := o.Await(limited, maps*share/100); err != nil {
			return cluster.Job{}, err
		}
		d.tell("%d of %d maps are done.", maps*share/100, maps)
	}
	ended, err := d.cluster.AwaitEnd(ctx, job, endLimit)
	if err != nil {
		return cluster.Job{}, err
	}
	d.tell("The job is %s: %d of %d tasks completed.", ended.State, ended.TasksCompleted, ended.TasksTotal)
	return ended, nil
}

// comeBack starts the killed coordinator again, with the same command line.
func (d *demo) comeBack(ctx context.Context, name string) error {
	n := d.cluster.Coordinator(name)
	if err := n.Start(ctx); err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	if err := d.cluster.AwaitCaughtUp(ctx, n); err != nil {
		return err
	}
	d.tell("%s was started again with the same command and has caught up: the cluster can lose a coordinator again.", name)
	return nil
}

// describe names workers and how many tasks each completed.
func describe(perWorker map[string]int) string {
	var words []string
	for i := range workers {
		name := fmt.Sprintf("w%d", i+1)
		words = append(words, fmt.Sprintf("%s %d", name, perWorker[name]))
	}
	return strings.Join(words, ", ")
}
