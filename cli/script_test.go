package cli

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the scripts in testdata against a leader at $DTASK_ADDR, a
// follower at $FOLLOWER that knows the leader, and $NOBODY. Their own command is
//
//	exits CODE ARGUMENT… [<FILE]
//
// which runs dtaskctl inside this process and wants that exit code. With
// REWRITE=1 in the environment the expected files are written anew.
func TestScripts(t *testing.T) {
	t.Parallel()
	nobody := closedPort(t)
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: os.Getenv("REWRITE") != "",
		Setup: func(env *testscript.Env) error {
			leader := newFakeLeader()
			addr, done, err := leader.serve()
			if err != nil {
				return err
			}
			leader.addr = addr
			env.Defer(done)
			follower := &fakeFollower{leader: addr}
			second, done, err := follower.serve()
			if err != nil {
				return err
			}
			env.Defer(done)
			env.Setenv("DTASK_ADDR", addr)
			env.Setenv("FOLLOWER", second)
			env.Setenv("NOBODY", nobody)
			env.Setenv("USER", "tester")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: exits CODE ARGUMENT… [<FILE]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	rest, stdin := fields(args[1:])
	for i, arg := range rest {
		if strings.HasSuffix(arg, ".yaml") && !strings.HasPrefix(arg, "-") {
			if _, err := os.Stat(ts.MkAbs(arg)); err == nil {
				rest[i] = ts.MkAbs(arg) // the process has one working directory, the scripts one each
			}
		}
	}
	in := ""
	if stdin != "" {
		in = ts.ReadFile(stdin)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a hang guard
	defer cancel()
	got := run(ctx, rest, &app{
		in: strings.NewReader(in), out: ts.Stdout(), err: ts.Stderr(),
		getenv: ts.Getenv, now: func() time.Time { return noon },
	})
	if got != want {
		ts.Fatalf("dtaskctl %s: exit code %d, want %d", strings.Join(rest, " "), got, want)
	}
}
