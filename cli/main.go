package cli

import (
	"context"
	"io"
	"os"
	"time"
)

// Main runs dtaskctl with these arguments, which exclude the program's name, and
// returns its exit code. When ctx is done, the command stops and the code is 130.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return run(ctx, args, &app{output: output{in: stdin, out: stdout, err: stderr, getenv: os.Getenv, now: time.Now}})
}

// run is Main in a given environment.
func run(ctx context.Context, args []string, a *app) int {
	root := newRoot(a) //nolint:contextcheck // cobra passes the context on
	a.args = args
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.InitDefaultCompletionCmd(args...)
	completeNamesInBash(root)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !a.started {
		err = usage(err)
	}
	return a.explain(ctx, cmd.CommandPath(), err)
}
