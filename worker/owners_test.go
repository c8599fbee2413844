package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Owners of jobs in these tests. Their users have no accounts.
const ownerLines = `# who runs as whom
alice 54321:54322
bob   54331:54332 etl
root  0:0
low   999:999

* *
`

// ownerMapFile writes a map.
func ownerMapFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run-as")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// asOwners runs a test with commands under the users of their owners. Without root, it
// checks that the worker refuses to start.
func asOwners(t *testing.T, cfg Config, test func(b *harness, l *leaderEnd)) {
	t.Helper()
	n := newRealNetwork(t)
	j := n.listenTLS(t, "n1:1")
	cfg.RunAs, cfg.WorkDir, cfg.DrainTimeout = RunAsOwner, openDir(t, 0o700), -1
	cfg.JoinString = joinString(t, j.ca, cluster)
	if cfg.RunAsMap == "" {
		cfg.RunAsMap = ownerMapFile(t, ownerLines)
	}
	b := start(t, n, cfg, map[string]Handler{"ok": returns})
	if os.Geteuid() != 0 {
		if err := <-b.done; err == nil || !strings.Contains(err.Error(), "invalid --run-as owner: only root can run commands under user nobody: start the worker as root") {
			t.Errorf("without root: %v", err)
		}
		n.stopAll()
		return
	}
	l := (<-j.sessions).welcome(t, 1)
	defer func() {
		b.drain()
		l.serveTillEnd(t)
		if err := <-b.done; err != nil {
			t.Errorf("Run = %v", err)
		}
		n.stopAll()
	}()
	test(b, l)
}

// An owned task is the only one of its job, whose number is that of the task.
type owned struct {
	owner, namespace string
	work
}

// assignOwned sends tasks of several owners.
func (l *leaderEnd) assignOwned(t *testing.T, tasks ...owned) {
	t.Helper()
	for _, o := range tasks {
		m := assignments(o.work)
		m.Contexts[0].Job, m.Contexts[0].Owner, m.Contexts[0].Namespace = uint64(100+o.task), o.owner, o.namespace
		l.send(t, &dtaskv1.SessionResponse{Assignments: m})
	}
}

func TestACommandRunsUnderTheUserOfItsOwner(t *testing.T) {
	t.Parallel()
	secrets := secretsDir(t, map[string]string{"api-key": "secret"})
	asOwners(t, Config{Slots: 2, SecretsDir: secrets}, func(b *harness, l *leaderEnd) {
		t := b.t
		const report = `touch x; printf %s "$(id -u) $(id -g) $(id -G) $(stat -c '%u %a' . $DTASK_CHECKPOINT_DIR $DTASK_SECRET_API_KEY_FILE | tr '\n' ' ')$(cat $DTASK_SECRET_API_KEY_FILE)" > $DTASK_RESULT_FILE`
		list := []struct{ owner, namespace, want string }{
			{"alice", "", "54321 54322 54322 54321 700 54321 700 54321 400 secret"},
			{"bob", "etl", "54331 54332 54332 54331 700 54331 700 54331 400 secret"},
			{"alice", "etl", "54321 54322 54322 54321 700 54321 700 54321 400 secret"},
		}
		for i, c := range list {
			l.assignOwned(t, owned{c.owner, c.namespace, work{task: uint32(i), body: shell(report), policy: naming("api-key")}})
		}
		l.assignOwned(t, owned{"carol", "", work{task: 3, typ: "ok", body: &dtaskv1.TaskBody{Payload: []byte("handled")}}})
		for _, o := range l.outcomes(t, len(list)+1) {
			want := "handled"
			if i := int(o.GetAttempt().GetTask()); i < len(list) {
				want = list[i].want
			}
			if string(o.GetResult()) != want {
				t.Errorf("task %d: got %q and the error %q, want %q", o.GetAttempt().GetTask(), o.GetResult(), o.GetError(), want)
			}
		}
		wantNoCopies(t, b.worker.dirs)
		if s := b.worker.Stats(); s.SupervisorsStarted < 2 {
			t.Errorf("%d supervisors ran commands of two users", s.SupervisorsStarted)
		}
	})
}

func TestACommandDoesNotStartWithoutALineForItsOwner(t *testing.T) {
	t.Parallel()
	asOwners(t, Config{Slots: 2}, func(b *harness, l *leaderEnd) {
		t := b.t
		file := b.worker.cfg.RunAsMap
		list := []struct {
			owner, namespace string
			fatal            bool
			want             string
		}{
			{"", "", true, "the job has no owner: submit it with a token"},
			{"bob", "", false, `finding the user of owner "bob" by ` + file + `: unknown user "bob"`}, // by the last line
			{"root", "", false, "user root: commands would have all rights of the worker"},
			{"low", "", true, `owner "low" would become user 999 with number 999 by ` + file + `: only users from number 1000 on run commands`},
			{"bin", "", true, `owner "bin" would become user bin with number `},
			{"54321", "", false, `unknown user "54321"`},
			{"54321:54322", "", false, `unknown user "54321:54322"`},
		}
		for i, c := range list {
			l.assignOwned(t, owned{c.owner, c.namespace, work{task: uint32(i), body: shell("id")}})
		}
		for _, o := range l.outcomes(t, len(list)) {
			c := list[o.GetAttempt().GetTask()]
			if o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED || o.GetFatal() != c.fatal || !strings.Contains(o.GetError(), c.want) {
				t.Errorf("owner %q: got %v, want %q, fatal %v", c.owner, o, c.want, c.fatal)
			}
		}
	})
}

// The map is read again when it has changed, and no command starts while others could
// change it.
func TestAChangedMapOfOwnersHoldsFromTheNextAttemptOn(t *testing.T) {
	t.Parallel()
	file := ownerMapFile(t, "alice 54321:54322\n")
	asOwners(t, Config{Slots: 1, RunAsMap: file}, func(b *harness, l *leaderEnd) {
		t := b.t
		task := uint32(0)
		outcome := func(owner string) reportedOutcome {
			l.assignOwned(t, owned{owner, "", work{task: task, body: shell("id -u")}})
			task++
			return l.outcome(t)
		}
		if o := outcome("alice"); string(o.GetResult()) != "54321" {
			t.Errorf("got %v", o)
		}
		want := `owner "bob" in namespace default has no line in ` + file
		if o := outcome("bob"); !o.GetFatal() || !strings.Contains(o.GetError(), want) {
			t.Errorf("got %v, want %q", o, want)
		}
		if err := os.WriteFile(file, []byte("bob 54331:54332\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if o := outcome("bob"); string(o.GetResult()) != "54331" {
			t.Errorf("got %v", o)
		}
		if o := outcome("alice"); !o.GetFatal() {
			t.Errorf("got %v", o)
		}
		for want, damage := range map[string]func() error{
			"with which others could map owners to any user: run chmod go-w on it":          func() error { return os.Chmod(file, 0o666) },
			"belongs to user 54321, who could map owners to any user: run chown root on it": func() error { return os.Chown(file, 54321, -1) },
		} {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			if o := outcome("bob"); o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED || o.GetFatal() || !strings.Contains(o.GetError(), want) {
				t.Errorf("got %v, want %q", o, want)
			}
			if err := errors.Join(os.Chown(file, 0, 0), os.Chmod(file, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The attack runs while the victim does, and each command knows the other's paths.
func TestOwnersOnOneWorkerSeeNothingOfEachOther(t *testing.T) {
	t.Parallel()
	shared := openDir(t, 0o777)
	cfg := Config{Slots: 2, SecretsDir: secretsDir(t, map[string]string{"api-key": "secret"})}
	asOwners(t, cfg, func(b *harness, l *leaderEnd) {
		t := b.t
		victim := fmt.Sprintf(`echo private > file; echo logged; echo private > $DTASK_CHECKPOINT_DIR/file
printf '%%s\n' $PWD $DTASK_CHECKPOINT_DIR $DTASK_SECRET_API_KEY_FILE $$ $(dirname $DTASK_RESULT_FILE) > %[1]s/new; mv %[1]s/new %[1]s/paths
i=0; while [ ! -e %[1]s/end ] && [ $i -lt 600 ]; do sleep 0.05; i=$((i+1)); done`, shared)
		attack := fmt.Sprintf(`i=0; while [ ! -e %[1]s/paths ] && [ $i -lt 600 ]; do sleep 0.05; i=$((i+1)); done
{ read work; read checkpoint; read secret; read pid; read result; } < %[1]s/paths
seen=
try() { if "$@" > /dev/null 2>&1; then seen="$seen [$*]"; fi; }
try ls $work; try cat $work/file; try touch $work/x; try ls $checkpoint; try cat $checkpoint/file; try cat $secret; try ls $(dirname $secret)
try ls $result; try ls %[2]s; try ls %[3]s; try cat /proc/$pid/environ; try ls /proc/$pid/cwd/; try kill -0 $pid; try cat %[4]s/api-key
touch %[1]s/end; echo "seen:$seen" $(test -d $work && echo there)`, shared, b.worker.dirs.logs(), filepath.Join(b.worker.dirs.root, "jobs"), cfg.SecretsDir)
		l.assignOwned(t,
			owned{"alice", "", work{task: 1, body: shell(victim), policy: naming("api-key")}},
			owned{"bob", "etl", work{task: 2, body: shell(attack)}})
		for _, o := range l.outcomes(t, 2) {
			switch {
			case o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED:
				t.Errorf("got %v", o)
			case o.GetAttempt().GetTask() == 2 && string(o.GetResult()) != "seen: there":
				t.Errorf("bob got %q of alice", o.GetResult())
			}
		}
	})
}

func TestAWorkerWithAWrongMapOfOwnersDoesNotStart(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		asOwners(t, Config{}, nil) // it does not start anyway
		return
	}
	writable := ownerMapFile(t, ownerLines)
	foreign := ownerMapFile(t, ownerLines)
	below := ownerMapFile(t, ownerLines)
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(
		os.Chmod(writable, 0o664), os.Chown(foreign, 54321, 0), os.Chown(filepath.Dir(below), 54321, 0), os.Symlink(below, link),
	); err != nil {
		t.Fatal(err)
	}
	ca, err := tlsconf.NewCA(cluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		writable:                                 writable + " has mode 0664, with which others could map owners to any user: run chmod go-w on it",
		foreign:                                  foreign + " belongs to user 54321",
		below:                                    filepath.Dir(below) + " belongs to user 54321",
		link:                                     filepath.Dir(below) + " belongs to user 54321",
		filepath.Join(t.TempDir(), "missing"):    "no such file or directory",
		t.TempDir():                              "is not a regular file",
		ownerMapFile(t, "alice\n"):               "line 1: must be IDENTITY USER [NAMESPACE…]",
		ownerMapFile(t, "\nalice batch Upper\n"): `line 2: invalid namespace "Upper"`,
	} {
		w, err := New(Config{RunAs: RunAsOwner, RunAsMap: path, WorkDir: openDir(t, 0o700), JoinString: joinString(t, ca, cluster)})
		if err != nil {
			t.Fatal(err)
		}
		w.Handle("ok", returns)
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Anyone could write any owner into a job file there.
func TestAClusterWithoutIdentitiesRunsNoCommandsOfOwners(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]Config{
		"only a cluster with identities proves who owns a job": {Join: []string{"127.0.0.1:1"}, RunAs: RunAsOwner, RunAsMap: "x"},
		"missing --run-as-map":                                 {Join: []string{"127.0.0.1:1"}, RunAs: RunAsOwner},
		"invalid --run-as-map: needs --run-as owner":           {Join: []string{"127.0.0.1:1"}, RunAs: otherUser, RunAsMap: "x"},
	} {
		cfg.WorkDir = t.TempDir()
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
