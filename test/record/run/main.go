// Command run runs a proof suite, so that the record (DTASK_RECORD) has a line of each
// run that fails:
//
//	run -suite chaos go test …
//
// A suite adds its own lines. If the command fails and has recorded no failure, because it
// panicked, reached a timeout or was killed, run does. If run itself is killed, the next
// run records that. Fuzz targets add no lines, so with -fuzz run records their time, too.
//
// A command that doesn't compile is not recorded. Without DTASK_RECORD, run only runs the
// command.
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dtask/dtask/test/record"
)

// storeVariable is the setting of dtaskd that selects the log store of a whole suite.
const storeVariable = "DTASK_LOG_STORE"

func main() {
	line := record.Run{LogStore: os.Getenv(storeVariable)}
	flag.StringVar(&line.Suite, "suite", "", "name of the suite in the record")
	target := flag.String("fuzz", "", "fuzz target whose time is recorded")
	flag.Parse()
	if line.Suite == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: run -suite NAME [-fuzz TARGET] COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	failed, err := run(context.Background(), os.Getenv(record.Env), &line, *target, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
	}
	if err != nil || failed != "" {
		os.Exit(1)
	}
}

// run runs a command. It returns how the command failed, or "".
func run(ctx context.Context, path string, line *record.Run, target string, command []string) (failed string, err error) {
	if path == "" {
		return execute(ctx, command, nil, io.Discard), nil
	}
	if err := record.AppendAbandoned(ctx, path); err != nil {
		return "", err //nolint:wrapcheck // the error is complete
	}
	started, err := record.Start(ctx, path, *line)
	if err != nil {
		return "", err //nolint:wrapcheck // the error is complete
	}
	var seen observer
	began := time.Now()
	failed = execute(ctx, command, []string{record.StartedEnv + "=" + started.Path}, &seen)
	switch {
	case failed == "":
		err = started.End(ctx, "")
	case seen.notBuilt:
		err = started.End(ctx, "") // nothing has started
	default:
		err = started.End(ctx, seen.describe(cmp.Or(target, strings.Join(command, " ")), failed))
	}
	if err != nil || failed != "" || target == "" {
		return failed, err //nolint:wrapcheck // the error is complete
	}
	line.Seconds = time.Since(began).Seconds()
	line.FuzzSeconds = map[string]int{target: int(seen.fuzzed.Seconds())}
	return "", record.Append(ctx, path, line) //nolint:wrapcheck // the error is complete
}

// execute runs a command and returns how it failed, or "". Signals that reach this process
// are for the command: what it has written must be recorded.
func execute(ctx context.Context, command, env []string, seen io.Writer) (failed string) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the caller's command
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = os.Stdin
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, seen), io.MultiWriter(os.Stderr, seen)
	signals := make(chan os.Signal, 8) // a terminal sends the same one to both
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := cmd.Start(); err != nil {
		signal.Stop(signals)
		return err.Error()
	}
	var forwarding sync.WaitGroup
	var got os.Signal // the first one
	forwarding.Go(func() {
		for s := range signals {
			got = cmp.Or(got, s)
			_ = cmd.Process.Signal(s) // it may have exited
		}
	})
	err := cmd.Wait()
	signal.Stop(signals)
	close(signals)
	forwarding.Wait()
	switch {
	case err == nil:
		return ""
	case got != nil:
		return got.String()
	}
	return err.Error()
}

// Lines of the output of go test.
var (
	notBuilt = regexp.MustCompile(`\[(build|setup) failed\]`)
	begun    = regexp.MustCompile(`^=== RUN +(\S+)`)
	fuzzed   = regexp.MustCompile(`^fuzz: elapsed: ([0-9hms.]+),`)
)

// observer reads the output of go test.
type observer struct {
	mu       sync.Mutex // guards all below
	rest     []byte     // of an unfinished line
	test     string     // the last that began
	panicked string     // the first line of a panic
	notBuilt bool
	fuzzed   time.Duration // without the time to compile
}

// Write reads complete lines.
func (o *observer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rest = append(o.rest, p...)
	for {
		line, rest, complete := bytes.Cut(o.rest, []byte("\n"))
		if !complete {
			return len(p), nil
		}
		o.rest = rest
		o.read(line)
	}
}

func (o *observer) read(line []byte) {
	if m := begun.FindSubmatch(line); m != nil {
		o.test = string(m[1])
	}
	if bytes.HasPrefix(line, []byte("panic: ")) && o.panicked == "" {
		o.panicked = string(line)
	}
	if m := fuzzed.FindSubmatch(line); m != nil {
		if elapsed, err := time.ParseDuration(string(m[1])); err == nil {
			o.fuzzed = elapsed
		}
	}
	o.notBuilt = o.notBuilt || notBuilt.Match(line)
}

// describe returns what failed and how, from the output, or from the command and its exit.
func (o *observer) describe(command, exit string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return cmp.Or(o.test, command) + ": " + cmp.Or(o.panicked, exit)
}
