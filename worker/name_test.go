package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// taken ends a session as a leader does whose worker of that name was silent for
// this long.
func taken(l *leaderEnd, silent time.Duration) {
	l.end <- refused(codes.PermissionDenied, &dtaskv1.ErrorDetail{
		Reason:     dtaskv1.ErrorReason_ERROR_REASON_REFUSED,
		NameHolder: &dtaskv1.NameHolder{Host: "other", Address: "10.0.0.3:4711", SilentMs: silent.Milliseconds()},
	})
}

// takenByLiving refuses the sessions of one name until none follows within 10 s,
// as a leader does whose worker sends a heartbeat each second. It returns the next
// session of another name; nil if none follows.
func takenByLiving(r *node, name string) *leaderEnd {
	begun := time.Now()
	for {
		select {
		case l := <-r.sessions:
			if l.hello.GetHello().GetName() != name {
				return l
			}
			taken(l, time.Since(begun)%time.Second)
		case <-time.After(10 * time.Second):
			return nil
		}
	}
}

// startNamed runs a worker with exactly this configuration.
func startNamed(t *testing.T, n *network, cfg Config) *harness {
	t.Helper()
	cfg.Join, cfg.DrainTimeout = []string{"n1:1"}, -1
	b := &harness{network: n, logs: &logBuffer{}, done: make(chan error, 1)}
	w, err := New(cfg, WithDialer(n.dial), WithLogger(slog.New(slog.NewTextHandler(b.logs, nil))))
	if err != nil {
		t.Fatal(err)
	}
	b.run(t, w)
	return b
}

func hostName(t *testing.T) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return nameFrom(host)
}

func TestAGivenNameThatALivingProcessHasIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		defer n.stopAll()
		begun := time.Now()
		b := startNamed(t, n, Config{Name: "w1", WorkDir: t.TempDir()})
		ended := make(chan struct{})
		go func() { defer close(ended); takenByLiving(r, "w1") }()
		err := <-b.done
		took := time.Since(begun)
		<-ended
		inUse, ok := errors.AsType[*NameInUseError](err)
		if !ok || *inUse != (NameInUseError{Name: "w1", Host: "other", Address: "10.0.0.3:4711"}) {
			t.Fatalf("Run returned %v, want the refusal", err)
		}
		if want := `worker name "w1" is in use by another process on host other (10.0.0.3:4711): stop that process, or set another --name`; err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
		if took > 2*time.Second {
			t.Errorf("got the refusal after %v, want within a heartbeat", took)
		}
	})
}

func TestTheNameOfADeadProcessBecomesFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		died := time.Now().Add(-500 * time.Millisecond)
		b := startNamed(t, n, Config{Name: "w1", WorkDir: t.TempDir()})
		defer b.finish()
		for {
			l := <-r.sessions
			if silent := time.Since(died); silent < 3*time.Second {
				taken(l, silent)
				continue
			}
			l.welcome(t, 1)
			break
		}
		if took := time.Since(died); took > 3*time.Second+maxBackoff { // the pauses between attempts are random
			t.Errorf("got the name %v after its process died, want soon after the liveness timeout", took)
		}
	})
}

// Its attempts may end well, and the other process may go.
func TestAWelcomedWorkerStaysWhileAnotherProcessHasItsName(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{Slots: 1}, map[string]Handler{"blocks": blocks}, func(b *harness, l *leaderEnd) {
		l.assign(b.t, work{task: 1, typ: "blocks"})
		l.next(b.t, "the start", func(m *dtaskv1.SessionRequest) bool { return len(m.GetReports().GetStarted()) > 0 })
		l.end <- refused(codes.Unavailable, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER})
		r := b.nodes["n1:1"]
		for begun := time.Now(); time.Since(begun) < time.Minute; {
			taken(<-r.sessions, 0)
		}
		again := <-r.sessions
		if held := again.hello.GetHello().GetHeld(); len(held) != 1 {
			b.t.Errorf("got held %v, want the attempt that runs", held)
		}
		again.welcome(b.t, 2)
		if !b.logs.has("another process has taken the name of this worker") {
			b.t.Error("the conflict is not logged")
		}
	})
}

func TestAWorkerKeepsTheNameThatItChose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		dir, host := t.TempDir(), hostName(t)
		b := startNamed(t, n, Config{WorkDir: dir})
		l := takenByLiving(r, host)
		if l == nil {
			t.Fatalf("the worker did not choose another name: %v", <-b.done)
		}
		name := l.hello.GetHello().GetName()
		if !regexp.MustCompile(`^` + regexp.QuoteMeta(host) + `-[0-9a-f]{4}$`).MatchString(name) {
			t.Errorf("got name %q, want that of the host with a suffix", name)
		}
		l.welcome(t, 1)
		synctest.Wait()
		b.drain()
		l.serveTillEnd(t)
		<-b.done

		again := startNamed(t, n, Config{WorkDir: dir})
		defer again.finish()
		if got := (<-r.sessions).welcome(t, 1).hello.GetHello().GetName(); got != name {
			t.Errorf("after a restart: got name %q, want %q", got, name)
		}
	})
}

// A copied machine has the directory of the original, and with it its name.
func TestACopiedDirectoryGetsTheNameOfItsHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, nameFile), []byte("original\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		b := startNamed(t, n, Config{WorkDir: dir})
		defer b.finish()
		l := takenByLiving(r, "original")
		if l == nil || l.hello.GetHello().GetName() != hostName(t) {
			t.Fatal("the worker did not take the name of its host")
		}
		l.welcome(t, 1)
	})
}

func TestAGivenNameIsNotKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		b := startNamed(t, n, Config{Name: "given", WorkDir: dir})
		(<-r.sessions).welcome(t, 1)
		synctest.Wait()
		b.finish()
		if _, err := os.Stat(filepath.Join(dir, nameFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the given name was stored: %v", err)
		}
	})
}

func TestWorkersOfOneHostHaveNamesAndDirectoriesOfTheirOwn(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir()) // so it can't be parallel
	synctest.Test(t, func(t *testing.T) {
		host := hostName(t)
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		const workers = 4
		running := map[string]*harness{}
		var all []*harness
		for range workers { // at the same time
			all = append(all, startNamed(t, n, Config{}))
		}
		for range workers {
			l := <-r.sessions
			name := l.welcome(t, 1).hello.GetHello().GetName()
			running[name] = nil
		}
		synctest.Wait()
		for _, b := range all {
			running[b.worker.name] = b
		}
		for i := range workers {
			name := numbered(host, i+1)
			b := running[name]
			if b == nil {
				t.Fatalf("no worker is named %q: %v", name, running)
			}
			if dir := filepath.Base(b.worker.dirs.root); dir != name {
				t.Errorf("worker %s uses the directory %s", name, dir)
			}
		}
		// One that replaces the first has its name, although the others run.
		first := running[host]
		first.drain()
		go func() {
			for l := range r.sessions {
				l.welcome(t, 1)
				go l.serveTillEnd(t)
			}
		}()
		n.stopAll()
		<-first.done
		again := startNamed(t, n, Config{})
		synctest.Wait()
		if again.worker.name != host {
			t.Errorf("the worker that replaces %s is named %s", host, again.worker.name)
		}
		for _, b := range append(all, again) {
			if b != first {
				b.finish()
			}
		}
		close(r.sessions)
	})
}

// The kernel may take some time to end a killed process.
func TestAWorkerWaitsForTheDirectoryOfADyingProcess(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir()) // so it can't be parallel
	host := hostName(t)
	for name, open := range map[string]func(ctx context.Context, root string) (*dirs, error){
		"chosen": func(ctx context.Context, _ string) (*dirs, error) { d, _, err := freeDirs(ctx, host); return d, err },
		"given":  awaitDirs,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root, err := defaultWorkDir(host)
				if err != nil {
					t.Fatal(err)
				}
				dying, err := openDirs(root)
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(lockTimeout/2, func() { _ = dying.close() })
				d, err := open(t.Context(), root)
				if err != nil {
					t.Fatal(err)
				}
				if d.root != root {
					t.Errorf("got %s, want %s", d.root, root)
				}
				if err := d.close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestALockIDNamesOneDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var ids []string
	for _, root := range []string{dir, dir, filepath.Join(dir, "other")} {
		d, err := openDirs(root)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, d.lockID)
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
	}
	if bootID() != "" && (len(ids[0]) != 32 || ids[0] != ids[1] || ids[0] == ids[2]) {
		t.Errorf("got %v, want one for both processes and another one for the other directory", ids)
	}
}

func TestNamesWithSuffixesAreValid(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"h", strings.Repeat("h", maxWorkerName)} {
		if name := withSuffix(host, "12ab"); !isName(name) || !strings.HasSuffix(name, "-12ab") {
			t.Errorf("got %q", name)
		}
	}
}
