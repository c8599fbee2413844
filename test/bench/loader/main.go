// Command loader holds thousands of simulated workers against a running cluster
// and says what came of it: sessions opened and lost, attempts received, ends
// acknowledged, how evenly work was spread, how long tasks waited for a worker,
// and what the coordinators cost meanwhile. With --tasks it submits work, too.
//
//	loader --addr 127.0.0.1:7460 --http 127.0.0.1:7461 --workers 10000 --slots 4 --for 30s
//	loader --addr … --workers 1000 --slots 8 --tasks 2000000 --takes skew:1ms:100ms:50
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/test/bench/load"
)

// options are the flags.
type options struct {
	load    load.Config
	addrs   string
	http    string
	streams string
	takes   string
	during  time.Duration
	open    time.Duration
	work    work

	identities identities
}

// deferred is how much garbage is gathered before it is collected: as much as a real
// worker does.
const deferred = 16 << 20

func main() {
	program.TuneBuffers()
	program.DeferCollection(deferred)
	var o options
	flag.StringVar(&o.addrs, "addr", "127.0.0.1:7460", "HOST:PORT of coordinators, with commas")
	flag.StringVar(&o.http, "http", "", "HOST:PORT of --http of coordinators, with commas: what they cost is reported")
	flag.IntVar(&o.load.Workers, "workers", 1000, "workers")
	flag.IntVar(&o.load.Slots, "slots", 4, "slots of each worker")
	flag.IntVar(&o.load.Prefetch, "prefetch", 0, "attempts that each worker may be given ahead of a free slot")
	flag.IntVar(&o.load.Connections, "connections", 16, "connections that the workers share")
	flag.StringVar(&o.streams, "streams", "shared", "shared: the workers of a connection have one stream together; own: each has its own")
	flag.StringVar(&o.load.Name, "name", "load", "begins the names of the workers")
	flag.DurationVar(&o.load.HeartbeatInterval, "beat", time.Second, "time between two heartbeats of a worker")
	flag.StringVar(&o.takes, "takes", "0s", "how long tasks take: 10ms, exp:10ms, or skew:10ms:1s:50 (one in 50 takes 1 s)")
	flag.DurationVar(&o.during, "for", 30*time.Second, "how long to hold the sessions, once they are open and all tasks have ended")
	flag.DurationVar(&o.open, "open-within", 2*time.Minute, "how long opening all sessions may take")
	flag.IntVar(&o.work.tasks, "tasks", 0, "no-op tasks to submit; 0: none")
	flag.IntVar(&o.work.each, "tasks-per-job", 10_000, "tasks of each job")
	flag.IntVar(&o.work.rate, "rate", 0, "tasks a second; 0: as fast as they are taken")
	flag.BoolVar(&o.work.arrays, "arrays", false, "submit each job as one array of tasks")
	flag.IntVar(&o.work.payload, "payload", 32, "bytes of payload of each task")
	flag.StringVar(&o.identities.ca, "ca-file", "", "ca.crt of a cluster with TLS")
	flag.StringVar(&o.identities.token, "token-file", "", "file with the token that submits to it")
	flag.StringVar(&o.identities.join, "join-file", "", "file with a join string of its workers, which need connections and streams of their own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "loader:", err)
		os.Exit(1)
	}
}

// report is what is printed, as JSON. Times are milliseconds.
type report struct {
	OpenSeconds float64 `json:"sessions_open_after_s"`
	load.Stats
	LostReasons    map[string]int    `json:"lost_because,omitempty"`
	BegunMin       int64             `json:"started_by_a_worker_min"`
	BegunMedian    int64             `json:"started_by_a_worker_median"`
	BegunMax       int64             `json:"started_by_a_worker_max"`
	WorkSeconds    float64           `json:"work_s,omitempty"`
	TasksPerSecond float64           `json:"tasks_per_second,omitempty"`
	WaitMS         map[string]string `json:"ready_to_started_ms,omitempty"`
	Idle           []cost            `json:"idle,omitempty"`
	Work           []cost            `json:"work,omitempty"`
}

// ownFiles is how many files this program opens beside the workers' connections.
const ownFiles = 128

func run(ctx context.Context, o options) error {
	o.load.Addrs = strings.Split(o.addrs, ",")
	files, err := program.RaiseFiles()
	if err != nil {
		return err //nolint:wrapcheck // says what it is
	}
	if need := uint64(len(o.load.Addrs)*o.load.Connections + ownFiles); files < need { //nolint:gosec // not negative
		return fmt.Errorf("%d connections to each of %d coordinators need %d open files; the hard limit is %d", o.load.Connections, len(o.load.Addrs), need, files)
	}
	if o.load.Own = o.streams == "own"; !o.load.Own && o.streams != "shared" {
		return fmt.Errorf("--streams: %q is neither shared nor own", o.streams)
	}
	if o.load.Takes, err = load.ParseDurations(o.takes); err != nil {
		return err //nolint:wrapcheck // says what it is
	}
	names := make([]string, o.load.Workers)
	for i := range names {
		names[i] = load.WorkerName(o.load.Name, i)
	}
	if o.load.Secure, err = o.identities.workers(ctx, names); err != nil {
		return err
	}
	l, err := load.New(o.load)
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	sessions, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { l.Run(sessions) })
	defer running.Wait()
	defer end()

	var r report
	began := time.Now()
	opening, cancel := context.WithTimeout(ctx, o.open)
	defer cancel()
	if err := l.Await(opening, o.load.Workers); err != nil {
		return fmt.Errorf("%w; so far %+v, lost because of %v", err, l.Stats(), l.Reasons())
	}
	r.OpenSeconds = time.Since(began).Seconds()
	err = measure(ctx, o, l, &r)
	r.Stats, r.LostReasons = l.Stats(), l.Reasons()
	spread := l.StartedByWorker()
	slices.Sort(spread)
	r.BegunMin, r.BegunMedian, r.BegunMax = spread[0], spread[len(spread)/2], spread[len(spread)-1]
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return errors.Join(err, out.Encode(r))
}

// measure lets the work be done, and then holds idle sessions.
func measure(ctx context.Context, o options, l *load.Load, r *report) error {
	var hosts []string
	if o.http != "" {
		hosts = strings.Split(o.http, ",")
	}
	if o.work.tasks > 0 {
		err := costing(ctx, hosts, &r.Work, func() error {
			began := time.Now()
			err := o.work.do(ctx, o, l)
			r.WorkSeconds = time.Since(began).Seconds()
			r.TasksPerSecond = float64(l.Stats().Completed) / r.WorkSeconds
			return err
		})
		if err != nil {
			return err
		}
		r.WaitMS = make(map[string]string)
		for name, q := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1} {
			r.WaitMS[name] = fmt.Sprintf("%.2f", float64(l.Latency().Quantile(q).Microseconds())/1000)
		}
		for i := range r.Work {
			r.Work[i].PerTask = r.Work[i].CPUSeconds / float64(o.work.tasks) * 1e6
		}
	}
	return costing(ctx, hosts, &r.Idle, func() error {
		select {
		case <-time.After(o.during):
		case <-ctx.Done():
		}
		return nil
	})
}
