package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// Three machines that know nothing of each other form a cluster and run a job; nothing is
// copied but a string. The leader is killed, a machine restarts, and both rejoin without a
// string.
func TestMachinesFormAClusterByJoinStrings(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newSecured(t, 3)
	w := s.addWorker("w1")
	file := cluster.JobFile("secured", cluster.TaskFile{"id": "a", "run": "echo hello"})
	completed(t, s.Ctl, clustertest.Submit(t, s.Ctl, file))
	status, err := s.Status(ctx)
	clustertest.Must(t, err)
	for _, m := range status.Members {
		if !m.Voter {
			t.Errorf("%s has no vote", m.ID)
		}
	}

	held := clustertest.Submit(t, s.Ctl, cluster.JobFile("held", cluster.TaskFile{"id": "held", "run": "sleep 1; echo done"}))
	leader := s.leader()
	clustertest.Must(t, s.nodes[leader].Kill())
	completed(t, s.Ctl, held)
	s.restart(leader)
	clustertest.Must(t, w.Kill())
	s.process("w1", "dtask-worker", "--work-dir", s.data("work-w1"))
	completed(t, s.Ctl, clustertest.Submit(t, s.Ctl, file))

	s.isAdministeredBySockets()
	s.hidesSecrets()
}

// isAdministeredBySockets checks that the socket of the leader needs no token, and that
// those of the others name the leader at once. If the leader changes meanwhile, all sockets are
// asked again.
func (s *secured) isAdministeredBySockets() {
	s.t.Helper()
	var status cluster.Status
	broken := ""
	for range 3 {
		before, err := s.Status(s.t.Context())
		clustertest.Must(s.t, err)
		broken = s.askSockets(s.leader())
		status, err = s.Status(s.t.Context())
		clustertest.Must(s.t, err)
		if broken == "" || before.Leader != "" && before.Term == status.Term {
			break
		}
		s.t.Logf("the term changed from %d to %d: %s", before.Term, status.Term, broken)
	}
	if broken != "" {
		s.t.Error(broken)
	}
	plain := cluster.Ctl{Programs: s.Programs}
	for _, m := range status.Members {
		plain.Addrs = append(plain.Addrs, m.Address)
	}
	wantRefused(s.t, plain.Run(s.t.Context(), "list"), 6, "this port requires TLS")
}

// askSockets checks the answers at the sockets of all nodes, one of which leads.
func (s *secured) askSockets(leader int) (broken string) {
	s.t.Helper()
	for i, n := range s.nodes {
		local := s.Ctl
		local.Env = []string{"DTASK_SOCKET=" + filepath.Join(s.data(n.Name), "dtaskd.sock")}
		if a := local.Run(s.t.Context(), "whoami"); a.Code != 0 || !strings.Contains(a.Stdout, "admin") {
			return fmt.Sprintf("through the socket of %s: %s", n.Name, a)
		}
		a := local.Run(s.t.Context(), "token", "list")
		if i == leader && (a.Code != 0 || !strings.Contains(a.Stdout, "w1")) {
			return fmt.Sprintf("through the socket of the leader %s: %s", n.Name, a)
		}
		if i != leader && (a.Code != 6 || !strings.Contains(a.Stderr, "the socket on the machine of the leader")) {
			return fmt.Sprintf("through the socket of %s, which does not lead: %s", n.Name, a)
		}
	}
	return ""
}

// hidesSecrets checks that no data of a coordinator or worker contains a secret of the
// strings, the token or the CA's key.
func (s *secured) hidesSecrets() {
	s.t.Helper()
	tokens, err := filepath.Glob(filepath.Join(s.dir, "me", "dtask", "*.token"))
	clustertest.Must(s.t, err)
	if len(tokens) != 1 {
		s.t.Fatalf("the token is in %v", tokens)
	}
	token, err := os.ReadFile(tokens[0])
	clustertest.Must(s.t, err)
	for _, n := range s.nodes {
		wantNowhere(s.t, s.data(n.Name), strings.TrimSpace(string(token)))
		wantNowhere(s.t, s.data(n.Name), s.worker)
	}
	wantNowhere(s.t, s.data("work-w1"), s.worker)
}

// Every wrong use of a join string has its own message, and nothing is left behind.
func TestEachWrongUseOfAJoinStringIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, other := newSecured(t, 1), newSecured(t, 1)
	me := cluster.Ctl{Programs: s.Programs, Env: []string{"HOME=" + s.dir, "XDG_CONFIG_HOME=" + filepath.Join(s.dir, "other")}}
	create := func(args ...string) string {
		a := s.Run(ctx, append([]string{"join-token", "create"}, args...)...)
		clustertest.Must(t, a.Err())
		return strings.TrimSpace(a.Stdout)
	}
	once := create("user", "--uses", "1", "--role", "reader")
	clustertest.Must(t, me.Run(ctx, "login", once, "--name", "first").Err())
	wantRefused(t, me.Run(ctx, "login", once, "--name", "second"), 6, "was used as often as it may be")
	wantRefused(t, me.Run(ctx, "login", once[:len(once)-4], "--name", "x"), 2, "damaged join string")
	wantRefused(t, me.Run(ctx, "login", s.worker, "--name", "x"), 6, "is for a worker")
	// The addresses of one cluster with the CA of another: what a man in the middle, or a
	// reused address, looks like.
	clustertest.Must(t, s.nodes[0].Kill())
	late := other.worker
	w := s.process("late", "dtask-worker", "--join", late, "--name", "late", "--work-dir", s.data("work-late"))
	s.await(w, "session opened") // of the other cluster: the string has its addresses
	again := s.process("late2", "dtask-worker", "--join", s.worker, "--name", "late", "--work-dir", s.data("work-late"))
	if code, err := again.Wait(ctx); code == 0 || err != nil {
		t.Errorf("a worker of one cluster joined another: %d, %v", code, err)
	}
	wantRefused(t, other.Run(ctx, "join-token", "create", "worker", "--ttl", "0"), 2, "uses")
	dir := filepath.Join(t.TempDir(), "n9")
	p := s.process("wrong", "dtaskd", "join", other.worker, "--advertise", "127.0.0.1:1", "--data-dir", dir)
	if code, err := p.Wait(ctx); code != 6 || err != nil {
		t.Errorf("dtaskd join with a worker's string: exit code %d, %v", code, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it left %s: %v", dir, err)
	}
}

// A revoked token ends the calls that are open, on every coordinator; a revoked worker
// loses what it runs to another one at once, and ends.
func TestARevocationEndsOpenCallsAndFencesTheWorkerAtOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const coordinators = 3
	s := newSecured(t, coordinators)
	stalls := clustertest.WatchStalls(t) // w1 may be lost in one, and begin again
	w1 := s.addWorker("w1")
	started := filepath.Join(s.dir, "started")
	id := clustertest.Submit(t, s.Ctl, cluster.JobFile("moves", cluster.TaskFile{
		"id": "a", "run": fmt.Sprintf("echo $DTASK_WORKER >> %s; [ $DTASK_WORKER = w2 ] || sleep 600", started),
	}))
	clustertest.Must(t, cluster.Until(ctx, "the task runs on w1", guard, func(context.Context) error {
		_, err := os.Stat(started)
		return err
	}))

	reader, err := s.As(ctx, s.dir, "watcher", "reader")
	clustertest.Must(t, err)
	ended := make(chan cluster.Answer, coordinators)
	for range coordinators {
		go func() { ended <- reader.Run(ctx, "watch", id) }()
	}
	clustertest.Must(t, cluster.Until(ctx, "the token was used", guard, func(ctx context.Context) error {
		a := s.Run(ctx, "token", "list", "-o", "json")
		var list struct {
			Tokens []struct {
				Name       string     `json:"name"`
				LastUsedAt *time.Time `json:"last_used_at"`
			} `json:"tokens"`
		}
		err := a.Into(&list)
		for _, x := range list.Tokens {
			if x.Name == "watcher" && x.LastUsedAt == nil {
				err = errors.New(a.String())
			}
		}
		return err
	}))
	revoke(t, s.Ctl, "watcher")
	for range coordinators {
		select {
		case a := <-ended:
			if a.Code != 6 {
				t.Errorf("the watch of a revoked token: %s", a)
			}
		case <-time.After(guard):
			t.Fatal("the watch of a revoked token continues")
		}
	}
	wantRefused(t, reader.Run(ctx, "list"), 6, "revoked")

	s.addWorker("w2")
	revoke(t, s.Ctl, "w1")
	if a := completed(t, s.Ctl, id).Task("a"); a.Worker != "w2" || a.Attempt < 2 || a.Attempt > 2 && stalls.Lost() == 0 {
		t.Errorf("got %+v, want the second attempt on w2", a)
	}
	if code, err := w1.Wait(ctx); code != 6 || err != nil {
		t.Errorf("the revoked worker ended with %d, %v", code, err)
	}
	s.await(w1, "start it with a new join string")

	// The machine joins again under its name. It is another worker to the cluster.
	clustertest.Must(t, os.RemoveAll(s.data("work-w1")))
	s.addWorker("w1")
	if a := s.Run(ctx, "worker", "list"); !strings.Contains(a.Stdout, "w1#") {
		t.Errorf("the revoked worker is not listed: %s", a)
	}
}

// revoke takes the access of an identity away.
func revoke(t *testing.T, c cluster.Ctl, name string) {
	t.Helper()
	id, err := c.Identity(t.Context(), name)
	clustertest.Must(t, err)
	clustertest.Must(t, c.Run(t.Context(), "token", "revoke", id).Err())
}

// Two teams share a cluster: neither sees, changes or blocks what the other has.
func TestNamespacesAreSeparate(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Coordinators: 1, Workers: 1, TLS: true})
	etl, err := c.As(ctx, c.Dir, "etl", "submitter", "etl")
	clustertest.Must(t, err)
	ml, err := c.As(ctx, c.Dir, "ml", "submitter", "ml")
	clustertest.Must(t, err)
	file := cluster.JobFile("nightly", cluster.TaskFile{"id": "a", "run": "echo hello"})
	id := clustertest.Submit(t, etl, file, "--idempotency-key", "monday")
	completed(t, etl, id)
	if other := clustertest.Submit(t, ml, file, "--idempotency-key", "monday"); other == id {
		t.Error("both teams got the same job")
	}
	for _, args := range [][]string{{"status", id}, {"result", id}, {"cancel", id, "--yes"}, {"logs", id + "/a"}, {"rerun", id}, {"wait", id}} {
		wantRefused(t, ml.Run(ctx, args...), 4, "not found")
	}
	if a := ml.Run(ctx, "list"); strings.Contains(a.Stdout, "etl") || !strings.Contains(a.Stdout, "nightly") {
		t.Errorf("the list of ml: %s", a)
	}
	wantRefused(t, ml.Run(ctx, "worker", "drain", "w1"), 6, "may not call DrainWorker, which needs the role admin, operator")
	wantRefused(t, ml.Run(ctx, "token", "list"), 6, "needs the role admin")
	wantRefused(t, ml.RunWith(ctx, file, "submit", "--namespace", "etl", "-"), 6, "etl")
}
