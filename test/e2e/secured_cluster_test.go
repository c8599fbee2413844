package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// secured is a cluster that is set up with the commands that docs/security.md shows, on
// one machine with an address for each program. Tests of what happens later use
// cluster.Config.TLS.
type secured struct {
	cluster.Ctl // logged in as an admin

	t      *testing.T
	dir    string
	nodes  []*cluster.Process // n1, n2, …
	worker string             // join string of workers
	works  string             // has the work directories of workers; "": dir
	admin  *client.Client     // see tls
}

// joinStrings finds what init prints.
var joinStrings = regexp.MustCompile(`dtj1-[a-z0-9]+`)

// newSecured starts a cluster of coordinators and logs in.
func newSecured(t *testing.T, coordinators int) *secured {
	t.Helper()
	programs, err := cluster.Find()
	clustertest.Must(t, err)
	s := &secured{t: t, dir: t.TempDir()}
	s.Ctl = cluster.Ctl{Programs: programs, Env: []string{"HOME=" + s.dir, "XDG_CONFIG_HOME=" + filepath.Join(s.dir, "me")}}
	t.Cleanup(func() { s.showLogs() })

	s.coordinator("init")
	text := s.await(s.nodes[0], "dtaskctl login")
	found := joinStrings.FindAllString(text, -1)
	if len(found) != 3 {
		t.Fatalf("init printed %d join strings:\n%s", len(found), text)
	}
	for len(s.nodes) < coordinators {
		s.coordinator("join", found[0])
		s.await(s.nodes[len(s.nodes)-1], "has a vote")
	}
	s.worker = found[1]
	clustertest.Must(t, s.Run(t.Context(), "login", found[2], "--name", "me").Err())
	return s
}

// showLogs shows the ends of the logs of a failed test.
func (s *secured) showLogs() {
	if !s.t.Failed() {
		return
	}
	for _, n := range s.nodes {
		text, _ := n.Log()
		s.t.Logf("%s:\n%s", n.Name, text[max(0, len(text)-2000):])
	}
}

// process starts a program that ends with the test.
func (s *secured) process(name, program string, args ...string) *cluster.Process {
	s.t.Helper()
	p := cluster.NewProcess(name, filepath.Join(s.dir, "logs"), s.Programs.Path(program), args, nil)
	clustertest.Must(s.t, p.Start(s.t.Context()))
	s.t.Cleanup(func() {
		if p.Running() {
			clustertest.Must(s.t, p.Kill())
		}
	})
	return p
}

// coordinator starts the next coordinator with dtaskd init or join.
func (s *secured) coordinator(args ...string) {
	s.t.Helper()
	name := fmt.Sprintf("n%d", len(s.nodes)+1)
	addr, err := cluster.FreePort(s.t.Context())
	clustertest.Must(s.t, err)
	s.nodes = append(s.nodes, s.process(name, "dtaskd", append(args,
		"--advertise", addr, "--listen", addr, "--http", "", "--data-dir", s.data(name), "--now", "--log-level", "info")...))
}

func (s *secured) data(name string) string { return filepath.Join(s.dir, name) }

// restart starts a coordinator as its administrator does from the second time on.
func (s *secured) restart(i int) {
	s.t.Helper()
	name := s.nodes[i].Name
	s.nodes[i] = s.process(name, "dtaskd", "--config", filepath.Join(s.data(name), "dtaskd.yaml"))
}

// addWorker starts a worker with the join string that init printed.
func (s *secured) addWorker(name string) *cluster.Process {
	s.t.Helper()
	w := s.process(name, "dtask-worker", "--join", s.worker, "--name", name, "--slots", "2", "--work-dir", s.data("work-"+name))
	s.await(w, "session opened")
	return w
}

// await returns the log of a process once it has a text.
func (s *secured) await(p *cluster.Process, text string) (log string) {
	s.t.Helper()
	clustertest.Must(s.t, cluster.Until(s.t.Context(), p.Name+" logs "+text, guard, func(context.Context) (err error) {
		if log, err = p.Log(); err == nil && !strings.Contains(log, text) {
			err = errors.New("it does not")
		}
		return err
	}))
	return log
}

// leader returns the index of the node that leads.
func (s *secured) leader() (i int) {
	s.t.Helper()
	clustertest.Must(s.t, cluster.Until(s.t.Context(), "a leader", guard, func(ctx context.Context) error {
		status, err := s.Status(ctx)
		for n, p := range s.nodes {
			if p.Name == status.Leader {
				i = n
				return err
			}
		}
		return errors.Join(err, errors.New("no leader"))
	}))
	return i
}

// wantRefused checks that a command was refused with a text.
func wantRefused(t *testing.T, a cluster.Answer, code int, text string) {
	t.Helper()
	if a.Code != code || !strings.Contains(a.Stderr, text) {
		t.Errorf("got %s, want exit code %d and %q", a, code, text)
	}
}
