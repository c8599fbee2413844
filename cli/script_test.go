package cli

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dtask/dtask/internal/tlsconf"
)

// TestScripts runs the scripts in testdata. $DTASK_ADDR is a leader, $FOLLOWER a
// follower that redirects to it, $NOBODY a closed port, and $RECIPIENT a public key
// of age. $PATIENCE multiplies how long a command waits for what it can do without. The
// command
//
//	exits CODE ARGUMENT… [<FILE]
//
// runs dtaskctl in this process and requires the exit code. REWRITE=1 in the
// environment rewrites the expected files.
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
			foreign, done, err := serveForeign()
			if err != nil {
				return err
			}
			env.Defer(done)
			env.Setenv("FOREIGN", foreign)
			if err := setupSecured(env); err != nil {
				return err
			}
			key, err := age.GenerateX25519Identity()
			if err != nil {
				return err
			}
			env.Setenv("RECIPIENT", key.Recipient().String())
			env.Setenv("FOLLOWER", second)
			env.Setenv("NOBODY", nobody)
			env.Setenv("USER", "tester")
			env.Setenv("PATIENCE", "30")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "joins": joins},
	})
}

// setupSecured serves clusters with TLS. $SECURED is the leader of one, $WORK/tls/ca.crt its
// CA, and $WORK/join has join strings for it; those in $WORK/foreign and $WORK/rotated lead
// to a cluster with another ID, and to the same with another CA. Those in $WORK/later lead to
// a cluster of a later time, as if the clock of this machine showed the past.
func setupSecured(env *testscript.Env) error {
	leader, done, err := newSecuredLeader(filepath.Join(env.WorkDir, "tls"), fakeCluster, time.Now())
	if err != nil {
		return err
	}
	env.Defer(done)
	later, done, err := newSecuredLeader(filepath.Join(env.WorkDir, "tls-later"), fakeCluster, time.Now().Add(1000*24*time.Hour))
	if err != nil {
		return err
	}
	env.Defer(done)
	env.Setenv("LATER", later.addr)
	env.Setenv("SECURED", leader.addr)
	env.Values[securedKey{}] = leader
	other, err := tlsconf.NewCA(fakeCluster, time.Now())
	if err != nil {
		return err
	}
	for dir, of := range map[string]struct {
		leader  *fakeLeader
		cluster string
		ca      *tlsconf.CA
	}{
		"join": {leader, fakeCluster, leader.ca}, "foreign": {leader, foreignCluster, other}, "rotated": {leader, fakeCluster, other},
		"later": {later, fakeCluster, later.ca},
	} {
		path := filepath.Join(env.WorkDir, dir)
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		if err := of.leader.writeJoinStrings(path, of.cluster, of.ca); err != nil {
			return err
		}
	}
	return nil
}

type securedKey struct{}

// joins checks how many calls of Join the secured leader has got:
//
//	joins N
func joins(ts *testscript.TestScript, neg bool, args []string) {
	leader, ok := ts.Value(securedKey{}).(*fakeLeader)
	if neg || len(args) != 1 || !ok {
		ts.Fatalf("usage: joins N")
	}
	leader.mu.Lock()
	defer leader.mu.Unlock()
	if got := strconv.Itoa(len(leader.joins)); got != args[0] {
		ts.Fatalf("the leader has got %s secrets of join strings, want %s", got, args[0])
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: exits CODE ARGUMENT… [<FILE]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	rest, stdin := fields(args[1:])
	for i, arg := range rest {
		if (strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".json")) && !strings.HasPrefix(arg, "-") {
			if _, err := os.Stat(ts.MkAbs(arg)); err == nil {
				rest[i] = ts.MkAbs(arg) // scripts have their own working directories
			}
		}
	}
	in := ""
	if stdin != "" {
		in = ts.ReadFile(stdin)
	}
	patience, err := strconv.Atoi(ts.Getenv("PATIENCE"))
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // fails instead of hanging
	defer cancel()
	got := run(ctx, rest, &app{output: output{
		in: strings.NewReader(in), out: ts.Stdout(), err: ts.Stderr(),
		getenv: ts.Getenv, now: func() time.Time { return noon }, patience: patience,
	}})
	if got != want {
		ts.Fatalf("dtaskctl %s: exit code %d, want %d", strings.Join(rest, " "), got, want)
	}
}
