// Command jitter runs the tests of a package with sleeps, to find those that depend on the
// order in which goroutines happen to run. It builds the package with a call before each
// statement, and each seed picks the lines that sleep in a run:
//
//	go run ./tools/jitter -pkg ./coordinator/session -seed 1 -seeds 5
//	go run ./tools/jitter -pkg ./coordinator/session -site coordinator/session/session.go:120
//
// For a seed that fails, it prints the tests that failed, their messages, the lines that
// slept, and the command that repeats the run. It exits 1 if a seed failed.
//
// The calls are in copies of the files, which the go command builds by an overlay. They
// are added to the files that `go list` reports for this build, but not to generated code,
// cgo, benchmark files, TestMain and functions named init. GOFLAGS=-race and -tags work as
// for other go commands. Programs that tests build or start are not changed, except the
// test binary itself. It runs on Linux only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	dir   string // in which the go command runs
	pkg   string
	with  string
	site  string
	run   string
	seed  uint64
	seeds int
	oneIn uint64
	times int
	pause time.Duration
}

func main() {
	o := options{dir: "."}
	flag.StringVar(&o.pkg, "pkg", "", "`PACKAGE` whose tests run and whose statements sleep")
	flag.StringVar(&o.with, "with", "", "other `PACKAGES` whose statements sleep, space-separated")
	flag.StringVar(&o.site, "site", "", "`FILE:LINE` of the only sleep (empty = the seeds pick)")
	flag.StringVar(&o.run, "run", "", "`REGEX` of the tests to run (empty = all)")
	flag.Uint64Var(&o.seed, "seed", 1, "first `SEED`")
	flag.IntVar(&o.seeds, "seeds", 5, "`NUMBER` of seeds, each in a run of its own")
	flag.Uint64Var(&o.oneIn, "one-in", 30, "a seed picks one line in `NUMBER`")
	flag.IntVar(&o.times, "times", 6, "`NUMBER` of sleeps at each line")
	flag.DurationVar(&o.pause, "sleep", 100*time.Millisecond, "`DURATION` of a sleep")
	flag.Parse()
	// A second signal ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := jitter(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "jitter:", err)
		os.Exit(1)
	}
}

// jitter builds the tests and runs them. The overlay and the test binary are in a
// temporary directory that it removes.
func jitter(ctx context.Context, o options, out io.Writer) (err error) {
	if err = o.validate(); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "jitter-")
	if err != nil {
		return fmt.Errorf("creating the directory of the overlay: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	b, err := prepare(ctx, o, tmp)
	if err != nil {
		return err
	}
	plans, err := b.plans(o)
	if err != nil {
		return err
	}
	if err = b.compile(ctx, o, tmp); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d lines can sleep\n", b.pkg.ImportPath, len(b.sites))
	failed := 0
	for _, p := range plans {
		r, err := b.run(ctx, o, p, tmp)
		if err != nil {
			return err
		}
		r.print(out, o, p)
		if r.failed {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d runs failed", failed, len(plans))
	}
	return nil
}

// validate returns all that is wrong with the options.
func (o options) validate() error {
	var errs []error
	if o.pkg == "" {
		errs = append(errs, errors.New("missing -pkg: name a package with tests, as in make jitter PKG=./coordinator/session"))
	}
	if o.seeds < 1 {
		errs = append(errs, fmt.Errorf("invalid -seeds %d: must be 1 or more", o.seeds))
	}
	if o.oneIn < 1 {
		errs = append(errs, fmt.Errorf("invalid -one-in %d: must be 1 or more", o.oneIn))
	}
	if o.times < 1 || o.times > 1<<30 {
		errs = append(errs, fmt.Errorf("invalid -times %d: must be 1 to %d", o.times, 1<<30))
	}
	if o.pause <= 0 {
		errs = append(errs, fmt.Errorf("invalid -sleep %s: must be above 0", o.pause))
	}
	return errors.Join(errs...)
}

// command returns a command in a process group of its own. The end of ctx kills the group:
// tests start processes.
func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// cause returns why a command failed: ctx, if it has ended.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
