// Command demo shows what dtask is for: it counts the words of a real source
// tree as a job of map and reduce tasks on three coordinators and three workers,
// all processes of their own on this machine, kills the leader half way with
// SIGKILL, and checks the result against a count that it makes without dtask.
//
// It ends with exit code 0 only if the counts are equal and no task was executed
// a second time. make demo builds the programs and runs it.
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
	"path/filepath"
	"strings"
	"syscall"
)

// options are the flags.
type options struct {
	source string   // directory with .go files
	skip   []string // directories at its top that are left out
	groups int      // map tasks
	keep   bool     // keep the cluster's directory
}

func main() {
	var o options
	flag.StringVar(&o.source, "source", "", "directory whose .go files are counted (default: Go's standard library, $(go env GOROOT)/src without cmd)")
	flag.IntVar(&o.groups, "groups", 96, "number of map tasks")
	flag.BoolVar(&o.keep, "keep", false, "keep data and logs of the cluster")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, o)
	stop()
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "demo: interrupted; everything that it started has been ended")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run is the program without its process. Whatever happens, nothing that it
// started is left.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	if o.source == "" {
		root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return fmt.Errorf("asking go for its source tree: %w", err)
		}
		o.skip = []string{"cmd"}
		o.source = filepath.Join(strings.TrimSpace(string(root)), "src")
	}
	d := &demo{options: o, story: newStory(out)}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, d.cluster.Close())
		if o.keep || err != nil {
			d.tell("Data and logs of all processes are kept in %s.", d.cluster.Dir)
			return
		}
		err = errors.Join(err, d.cluster.Remove())
	}()
	err = d.play(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
