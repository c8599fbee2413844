package cli

import (
	"context"
	"io"
	"os"
	"time"
)

// Main runs dtaskctl with these arguments, without the program's name, and
// returns its exit code. When ctx is done, the command stops with 130.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return run(ctx, args, &app{in: stdin, out: stdout, err: stderr, getenv: os.Getenv, now: time.Now})
}

// run is Main with its surroundings given.
func run(ctx context.Context, args []string, a *app) int {
	root := newRoot(a) //nolint:contextcheck // cobra hands the context down
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !a.started {
		err = &usageError{err: err, command: cmd.CommandPath()}
	}
	return a.explain(ctx, err)
}
