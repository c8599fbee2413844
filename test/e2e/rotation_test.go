package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/worker"
	"github.com/dtask/dtask/worker/builtin"
)

// rotationScale is how much the rotation test does: the short form is for CI, and
// DTASK_ROTATION=long chooses the other one.
type rotationScale struct {
	workers, slots, rate int  // rate: tasks per second
	leaves               int  // rotations of a coordinator's certificate
	each                 bool // wait until each of them is in use
	calm                 int  // jobs that end before anything is measured
	baseline             int  // jobs that end before the first rotation; about as long as the longest step
	tries                int  // while the machine disturbs them
	together             bool // the workers share the process of the test, each with a connection of its own
}

func scaleOfRotation() rotationScale {
	if os.Getenv("DTASK_ROTATION") == "long" {
		return rotationScale{workers: 200, slots: 16, rate: 21_000, leaves: 20, each: true, calm: 250, baseline: 5000, together: true, tries: 1}
	}
	return rotationScale{workers: 4, slots: 16, rate: 1000, leaves: 3, calm: 10, baseline: 10, tries: 3}
}

// statusInterval separates two looks at the certificates. A process for each look, every 20 ms,
// would take a processor from the cluster that is measured.
const statusInterval = 200 * time.Millisecond

// tls returns what `tls status` shows.
func (s *secured) tls(ctx context.Context) *dtaskv1.TLSStatusResponse {
	s.t.Helper()
	if s.admin == nil {
		s.admin = s.client()
	}
	st, err := s.admin.TLSStatus(ctx)
	clustertest.Must(s.t, err)
	return st
}

// untilTLS waits until cond returns nil for what `tls status` shows.
func (s *secured) untilTLS(what string, cond func(*dtaskv1.TLSStatusResponse) error) {
	s.t.Helper()
	clustertest.Must(s.t, cluster.Until(s.t.Context(), what, guard, func(ctx context.Context) error {
		err := cond(s.tls(ctx))
		if err == nil {
			return nil
		}
		return errors.Join(err, cluster.Pause(ctx, statusInterval))
	}))
}

// Certificates and the CA are replaced while tasks run: none fails, none is repeated, and
// the leader stays. On a busy machine another leader may be elected, or a worker be silent for
// too long, for other reasons: then all is done again with another cluster.
func TestCertificatesAndTheCAAreReplacedUnderLoad(t *testing.T) { //nolint:tparallel // one try after another
	t.Parallel()
	scale := scaleOfRotation()
	changes := 0 // of the leader, while the machine did not stall
	for try := range scale.tries {
		var disturbed error
		if !t.Run(fmt.Sprint("try", try), func(t *testing.T) { disturbed = replaceUnderLoad(t, scale) }) || disturbed == nil {
			return
		}
		if errors.Is(disturbed, errLeaderChanged) {
			changes++
		}
		if changes > 1 {
			t.Fatalf("for the second time: %v", disturbed)
		}
		t.Logf("disturbed: %v", disturbed)
	}
	t.Errorf("each of %d tries was disturbed", scale.tries)
}

// errLeaderChanged means that the leader changed although the machine did not stall.
var errLeaderChanged = errors.New("the leader changed")

// replaceUnderLoad replaces all certificates and the CA of a new cluster with a load. The error
// is what went wrong, if the leader changed or the machine stalled meanwhile.
func replaceUnderLoad(t *testing.T, scale rotationScale) (disturbed error) {
	t.Helper()
	ctx := t.Context()
	s := newSecured(t, 3)
	s.rotationWorkers(scale)
	stalls := clustertest.WatchStalls(t)
	before, err := s.Status(ctx)
	clustertest.Must(t, err)
	load := s.paced(scale.rate, before.Leader)
	zombie := s.replaceAll(scale, load)
	steps, ended, failed := load.end()

	after, err := s.Status(ctx)
	clustertest.Must(t, err)
	lost := stalls.Lost()
	switch {
	case lost == 0 && (after.Leader != before.Leader || after.Term != before.Term):
		return fmt.Errorf("%w from %s in term %d to %s in term %d; %w", errLeaderChanged, before.Leader, before.Term, after.Leader, after.Term,
			cmp.Or(failed, errors.New("no job failed")))
	case after.Leader != before.Leader || after.Term != before.Term:
		return fmt.Errorf("the machine stalled for %v, and the leader changed; %w", lost, cmp.Or(failed, errors.New("no job failed")))
	case failed != nil && lost > 0:
		return fmt.Errorf("the machine stalled for %v: %w", lost, failed)
	}
	clustertest.Must(t, failed)
	logSteps(t, scale, steps, ended)
	s.keepsOnlyTheNewCA(scale)
	s.refusesTheOldCA(zombie, after.Leader)
	return nil
}

// replaceAll replaces what there is to replace, in steps of a load. It returns a copy of the
// certificates that n3 had before.
func (s *secured) replaceAll(scale rotationScale, load *pacedLoad) (zombie string) {
	s.t.Helper()
	ctx := s.t.Context()
	load.awaitJobs(scale.calm)
	load.begin("nothing is replaced")
	load.awaitJobs(scale.calm + scale.baseline)

	load.begin("coordinators use new certificates")
	s.renewLeaves(scale)
	old := s.tls(ctx).GetCas()[0].GetKeyHash()
	zombie = filepath.Join(s.dir, "zombie")
	clustertest.Must(s.t, os.CopyFS(zombie, os.DirFS(filepath.Join(s.data("n3"), "tls"))))
	load.begin("everyone learns the new CA")
	clustertest.Must(s.t, s.Run(ctx, "tls", "rotate-ca").Err())
	if st := s.untilNobodyLacks(scale); len(st.GetCas()) != 2 || bytes.Equal(st.GetCas()[0].GetKeyHash(), old) {
		s.t.Errorf("got %v", st)
	}
	load.begin("the old CA is dropped")
	clustertest.Must(s.t, s.Run(ctx, "tls", "rotate-ca", "--finish").Err())
	if st := s.tls(ctx); len(st.GetCas()) != 1 || bytes.Equal(st.GetCas()[0].GetKeyHash(), old) {
		s.t.Errorf("the old CA was not dropped: %v", st)
	}
	s.untilNobodyLacks(scale) // the coordinators still answer each other
	return zombie
}

// logSteps prints the table of the steps.
func logSteps(t *testing.T, scale rotationScale, steps []step, ended time.Time) {
	t.Helper()
	calm, tasks, longest := steps[0], 0, time.Duration(0)
	t.Logf("| %-33s | longest time without a completion | %6s |", calm.name, calm.longest.Round(time.Millisecond))
	for _, step := range steps[1:] {
		t.Logf("| %-33s | longest time without a completion | %6s |", step.name, step.longest.Round(time.Millisecond))
		tasks, longest = tasks+step.tasks, max(longest, step.longest)
	}
	t.Logf("| %d connections of workers | %.0f tasks/s | longest time without a completion | %s |", scale.workers,
		float64(tasks)/ended.Sub(steps[1].begun).Seconds(), longest.Round(time.Millisecond))
}

// rotationWorkers starts the workers, and waits until all are connected. Hundreds of processes
// would spend the time of a small machine on changing from one to the next. What the workers
// sync must not delay the log of the coordinators, which have disks of their own in a real
// cluster.
func (s *secured) rotationWorkers(scale rotationScale) {
	s.t.Helper()
	if scale.together {
		dir, err := os.MkdirTemp(memoryDir(), "dtask-rotation-")
		clustertest.Must(s.t, err)
		s.t.Cleanup(func() { clustertest.Must(s.t, os.RemoveAll(dir)) })
		s.works = dir
	}
	for i := range scale.workers {
		name := fmt.Sprintf("w%d", i)
		if !scale.together {
			s.await(s.process(name, "dtask-worker", "--join", s.worker, "--name", name, "--slots", fmt.Sprint(scale.slots), "--work-dir", s.work(name)), "session opened")
			continue
		}
		w, err := worker.New(worker.Config{JoinString: client.Secret(s.worker), Name: name, Slots: scale.slots, WorkDir: s.work(name), DrainTimeout: -1})
		clustertest.Must(s.t, err)
		builtin.Register(w)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1) // size 1: one result
		go func() { done <- w.Run(ctx) }()
		s.t.Cleanup(func() {
			stop()
			<-done // the test has looked at what the worker did
		})
	}
	s.untilTLS("all workers are connected", func(st *dtaskv1.TLSStatusResponse) error {
		if n := int(st.GetWorkers()); n < scale.workers {
			return fmt.Errorf("%d of %d are", n, scale.workers)
		}
		return nil
	})
}

// memoryDir returns a directory in memory; "", for the usual one, if this system has none.
func memoryDir() string {
	const shared = "/dev/shm"
	if _, err := os.Stat(shared); err != nil {
		return ""
	}
	return shared
}

// work returns the work directory of a worker.
func (s *secured) work(name string) string {
	return filepath.Join(cmp.Or(s.works, s.dir), "work-"+name)
}

// renewLeaves issues the certificates of the coordinators again, one after another, and
// waits until each uses its new one.
func (s *secured) renewLeaves(scale rotationScale) {
	s.t.Helper()
	n := scale.leaves
	for i := range n {
		node := s.nodes[i%len(s.nodes)]
		dir := filepath.Join(s.data(node.Name), "tls")
		days := fmt.Sprint(30 + i)
		a := s.Run(s.t.Context(), "tls", "issue", "--ca", dir, "--replica", node.Name, "--out", dir, "--days", days, "-o", "json")
		var issued struct {
			ExpiresAt time.Time `json:"expires_at"`
		}
		clustertest.Must(s.t, a.Into(&issued))
		if !scale.each && i < n-len(s.nodes) {
			continue // the files are read every ten seconds: wait for the last ones only
		}
		s.untilTLS(node.Name+" uses its new certificate", func(st *dtaskv1.TLSStatusResponse) error {
			for _, r := range st.GetReplicas() {
				if r.GetServerId() == node.Name && r.GetExpiresAt()/1000 == issued.ExpiresAt.Unix() {
					return nil
				}
			}
			return errors.New("it does not")
		})
	}
}

// untilNobodyLacks waits until all replicas and workers have the new CA, and returns what
// `tls status` shows then. Workers connect again when they have learned it: those that are not
// connected are not known to have it.
func (s *secured) untilNobodyLacks(scale rotationScale) (st *dtaskv1.TLSStatusResponse) {
	s.t.Helper()
	s.untilTLS("everyone has the new CA", func(now *dtaskv1.TLSStatusResponse) error {
		for _, r := range now.GetReplicas() {
			if !r.GetCurrent() {
				return fmt.Errorf("%s lacks it", r.GetServerId())
			}
		}
		if lacking := now.GetWorkersLacking(); len(lacking) > 0 {
			return fmt.Errorf("%v lack it", lacking)
		}
		if n := int(now.GetWorkers()); n != scale.workers {
			return fmt.Errorf("%d of %d workers are connected", n, scale.workers)
		}
		st = now
		return nil
	})
	return st
}

// keepsOnlyTheNewCA checks that the context and the workers have stored the new CA, and no
// other one.
func (s *secured) keepsOnlyTheNewCA(scale rotationScale) {
	s.t.Helper()
	clustertest.Must(s.t, s.Run(s.t.Context(), "whoami").Err())
	saved, err := os.ReadFile(filepath.Join(s.dir, "me", "dtask", "contexts.yaml"))
	clustertest.Must(s.t, err)
	if n := strings.Count(string(saved), "BEGIN CERTIFICATE"); n != 1 {
		s.t.Errorf("the context has %d CAs:\n%s", n, saved)
	}
	for i := range scale.workers {
		s.untilStored(fmt.Sprintf("w%d", i))
	}
}

// untilStored waits until a worker has stored one CA and the addresses of all coordinators.
func (s *secured) untilStored(name string) {
	s.t.Helper()
	clustertest.Must(s.t, cluster.Until(s.t.Context(), name+" stores the new CA", guard, func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(s.work(name), "cluster.json"))
		if err != nil {
			return err
		}
		var stored struct {
			CA        string   `json:"ca"`
			Addresses []string `json:"addresses"`
		}
		if err := json.Unmarshal(text, &stored); err != nil {
			return err
		}
		if strings.Count(stored.CA, "BEGIN CERTIFICATE") != 1 || len(stored.Addresses) != len(s.nodes) {
			return fmt.Errorf("it has %s", text)
		}
		return nil
	}))
}

// refusesTheOldCA checks that join strings of the old CA are refused with the reason, and
// that a coordinator that returns with its old certificate is not let in.
func (s *secured) refusesTheOldCA(zombie, leader string) {
	s.t.Helper()
	me := cluster.Ctl{Programs: s.Programs, Env: []string{"HOME=" + s.dir, "XDG_CONFIG_HOME=" + filepath.Join(s.dir, "other")}}
	late := s.process("late", "dtask-worker", "--join", s.worker, "--name", "late", "--work-dir", s.data("work-late"))
	if code, err := late.Wait(s.t.Context()); code == 0 || err != nil {
		s.t.Errorf("a join string of the old CA was accepted: %d, %v", code, err)
	}
	s.await(late, "the CA of the cluster has changed")
	clustertest.Must(s.t, me.Run(s.t.Context(), "login", s.joinString("user"), "--name", "new").Err())

	victim := slices.IndexFunc(s.nodes, func(p *cluster.Process) bool { return p.Name == "n3" })
	if leader == "n3" {
		clustertest.Must(s.t, s.Run(s.t.Context(), "cluster", "transfer-leader", "n1").Err())
	}
	clustertest.Must(s.t, s.nodes[victim].Kill())
	tls := filepath.Join(s.data("n3"), "tls")
	clustertest.Must(s.t, os.RemoveAll(tls))
	clustertest.Must(s.t, os.CopyFS(tls, os.DirFS(zombie)))
	for _, name := range []string{"tls.key", "ca.key"} {
		clustertest.Must(s.t, os.Chmod(filepath.Join(tls, name), 0o600))
	}
	s.restart(victim)
	s.await(s.nodes[victim], "replica n3 is refused: certificate of replica n3 refused: it was not issued by a CA in ca.crt")
	for _, r := range s.tls(s.t.Context()).GetReplicas() {
		if r.GetServerId() == "n3" && r.GetCurrent() {
			s.t.Error("n3 was let in with its old certificate")
		}
	}
}

// joinString makes a join string.
func (s *secured) joinString(purpose string) string {
	s.t.Helper()
	a := s.Run(s.t.Context(), "join-token", "create", purpose)
	clustertest.Must(s.t, a.Err())
	return strings.TrimSpace(a.Stdout)
}

// A worker replaces its key when it starts, and the cluster forgets the old one.
func TestAWorkerReplacesItsKey(t *testing.T) {
	t.Parallel()
	s := newSecured(t, 1)
	w := s.addWorker("w1")
	clustertest.Must(t, w.Kill())
	path := filepath.Join(s.data("work-w1"), "worker.pem")
	old, err := os.ReadFile(path)
	clustertest.Must(t, err)
	w = s.process("w1-rotated", "dtask-worker", "--work-dir", s.data("work-w1"), "--rotate-key")
	s.await(w, "session opened")
	if now, err := os.ReadFile(path); err != nil || bytes.Equal(now, old) {
		t.Errorf("the key is the old one: %v", err)
	}
	file := cluster.JobFile("key", cluster.TaskFile{"id": "a", "run": "true"})
	completed(t, s.Ctl, clustertest.Submit(t, s.Ctl, file))
	clustertest.Must(t, w.Kill())
	clustertest.Must(t, os.WriteFile(path, old, 0o600))
	w = s.process("w1-old", "dtask-worker", "--work-dir", s.data("work-w1"))
	s.await(w, "join again with a new join string")
}
