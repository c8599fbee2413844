// Command mark-worker is a worker for suites that need many tasks: beside all
// that a stock worker does it has a handler, mark, that writes to the ledger as
// command mark does, without the price of a process for each task. It reaches
// coordinators through the addresses that --via puts in place of theirs, also
// when it is redirected, so that a suite can break its links. With --shift, a
// label of its changes from start to start.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/ledger"
	"github.com/dtask/dtask/worker"
	"github.com/dtask/dtask/worker/builtin"
	"github.com/dtask/dtask/worker/gpu"
	"github.com/dtask/dtask/worker/process"
)

func main() {
	process.RunSupervisor()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mark-worker:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run() error {
	var cfg worker.Config
	flag.StringVar(&cfg.Name, "name", "", "name of this worker")
	flag.IntVar(&cfg.Slots, "slots", 0, "attempts that run at a time")
	flag.StringVar(&cfg.WorkDir, "work-dir", "", "its own directory")
	settings := labelsAndResources(&cfg)
	join := flag.String("join", "", "addresses of coordinators, or @FILE with a join string")
	path := flag.String("ledger", "", "file that the handler mark appends to")
	via := flag.String("via", "", "ADDRESS=ADDRESS,…: what to dial instead")
	flag.Parse()
	if err := setJoin(&cfg, *join); err != nil {
		return err
	}
	labels, err := settings()
	if err != nil {
		return err
	}
	book, err := file(*path)
	if err != nil {
		return err
	}
	log, err := program.NewLogger(os.Stderr, "info", "text")
	if err != nil {
		return fmt.Errorf("making a logger: %w", err)
	}
	instead := make(map[string]string)
	for entry := range strings.SplitSeq(*via, ",") {
		if from, to, ok := strings.Cut(entry, "="); ok {
			instead[from] = to
		}
	}
	w, err := worker.New(cfg, worker.WithLogger(log), worker.WithDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		if other, ok := instead[addr]; ok {
			addr = other
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}))
	if err != nil {
		return fmt.Errorf("making a worker: %w", err)
	}
	builtin.Register(w)
	w.Handle(cluster.MarkType, func(ctx context.Context, t *worker.Task) ([]byte, error) { return nil, mark(ctx, book, labels, t) })
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return w.Run(ctx) //nolint:wrapcheck // says what it did
}

// setJoin sets the addresses of coordinators, or the join string of a file.
func setJoin(cfg *worker.Config, join string) error {
	path, secret := strings.CutPrefix(join, "@")
	if !secret {
		cfg.Join = strings.Split(join, ",")
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the join string: %w", err)
	}
	cfg.JoinString = client.Secret(text)
	return nil
}

// file opens the ledger; a worker without one has no use for the handler.
func file(path string) (io.Writer, error) {
	if path == "" {
		return io.Discard, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644) // open until the process ends
	if err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	return f, nil
}

// ended is the exit code in the ledger of an attempt that was ended from outside.
const ended = 143

// mark is the handler.
func mark(ctx context.Context, book io.Writer, labels map[string]string, t *worker.Task) error {
	var p cluster.MarkPayload
	if err := json.Unmarshal(t.Payload, &p); err != nil {
		return worker.Fatal(fmt.Errorf("reading the payload: %w", err))
	}
	line := ledger.Line{
		Kind: ledger.Start, Job: strconv.FormatUint(t.Job, 10), Task: t.ID, Attempt: int(t.Attempt),
		Token: t.FencingToken, Execution: t.ExecutionID(), Worker: t.Worker, Pid: os.Getpid(),
		Labels: labels, GPUs: t.GPUs, GPUAmount: t.Resources[gpu.Resource],
	}
	if err := line.Append(book); err != nil {
		return worker.Fatal(err)
	}
	timer := time.NewTimer(time.Duration(p.WorkMS) * time.Millisecond)
	defer timer.Stop()
	line.Kind, line.Labels, line.GPUs, line.GPUAmount = ledger.End, nil, nil, 0
	var failed error
	select {
	case <-timer.C:
		if int(t.Failures) < p.Fails {
			line.Exit = 1
			failed = worker.Exit(1, errors.New("as requested"))
		}
	case <-ctx.Done():
		line.Exit, failed = ended, context.Cause(ctx)
	}
	if err := line.Append(book); err != nil {
		return worker.Fatal(err)
	}
	return failed
}
