package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The user of commands in these tests has no account.
const (
	otherUser = "54321:54322"
	otherUID  = 54321
)

// openDir makes a directory that all users can reach, with this mode.
func openDir(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o711), os.Chmod(dir, mode)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// asOther runs a test with commands under another user. Without root, it checks that the
// worker refuses to start.
func asOther(t *testing.T, cfg Config, test func(b *harness, l *leaderEnd)) {
	t.Helper()
	cfg.RunAs, cfg.WorkDir = otherUser, openDir(t, 0o700)
	if os.Geteuid() == 0 {
		withLeader(t, cfg, test)
		return
	}
	w, err := New(Config{Join: []string{"127.0.0.1:1"}, RunAs: otherUser, WorkDir: cfg.WorkDir})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("ok", returns)
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "invalid --run-as 54321:54322: only root can run commands under user 54321: start the worker as root") {
		t.Errorf("without root: %v", err)
	}
}

// ownerOf returns the user of a file.
func ownerOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Error(err)
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// A worker that must isolate its commands is not even made without another user for them and
// the rights that this needs.
func TestAWorkerThatMustIsolateItsCommandsNeedsAnotherUser(t *testing.T) {
	t.Parallel()
	ca, err := tlsconf.NewCA(cluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]string{ // in the error, by --run-as
		"": "missing --run-as", "root": "name another user", "no-such-user": "unknown user", otherUser: "", RunAsOwner: "",
	}
	if os.Geteuid() != 0 {
		wanted[otherUser], wanted[RunAsOwner] = "start the worker as root", "start the worker as root"
	}
	for user, want := range wanted {
		cfg := Config{JoinString: joinString(t, ca, cluster), WorkDir: t.TempDir(), RunAs: user, RequireIsolation: true}
		if user == RunAsOwner {
			cfg.RunAsMap = "owners"
		}
		if _, err := New(cfg); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("--run-as %q: got %v, want %q", user, err, want)
		}
		cfg.RequireIsolation = false
		if _, err := New(cfg); err != nil {
			t.Errorf("--run-as %q without the requirement: %v", user, err)
		}
	}
}

func TestACommandOfAnotherUserHasAllThatACommandHas(t *testing.T) {
	t.Parallel()
	dir := openDir(t, 0o777)
	asOther(t, Config{Slots: 2, SecretsDir: secretsDir(t, map[string]string{"api-key": "secret"})}, func(b *harness, l *leaderEnd) {
		t := b.t
		list := []struct {
			name string
			body *dtaskv1.TaskBody
			want string
		}{
			{"identity", shell("echo $(id -u) $(id -g) $(id -G) $HOME $USER $LOGNAME"), "54321 54322 54322 / 54321 54321"},
			{"own empty directory", shell(`test -z "$(ls -A)"; touch x; echo $(stat -c "%u %a" . x) $(basename $PWD)`), "54321 700 54321 644 7-1-1"},
			{"result file", shell("echo line; printf result > $DTASK_RESULT_FILE"), "result"},
			{"last line", shell("echo line"), "line"},
			{"payload", &dtaskv1.TaskBody{Run: "cat /dev/stdin", Payload: []byte("pay")}, "pay"},
			{"secret", shell(describe), "secret 400 700 "},
			{"checkpoint", shell(`stat -c "%u %a" $DTASK_CHECKPOINT_DIR`), "54321 700"},
			{"output", &dtaskv1.TaskBody{Run: "echo out > $DTASK_OUTPUT; echo done", Output: filepath.Join(dir, "new", "out")}, "done"},
			{"its directory", &dtaskv1.TaskBody{Run: "pwd", Cwd: dir}, dir},
		}
		var tasks []work
		for i, c := range list {
			tasks = append(tasks, work{task: uint32(i), body: c.body, policy: naming("api-key")})
		}
		l.assign(t, tasks...)
		for _, o := range l.outcomes(t, len(list)) {
			c := list[o.GetAttempt().GetTask()]
			if c.name == "secret" {
				_, path, _ := strings.Cut(string(o.GetResult()), c.want)
				c.want += path
			}
			if string(o.GetResult()) != c.want {
				t.Errorf("%s: got %q and the error %q, want %q", c.name, o.GetResult(), o.GetError(), c.want)
			}
		}
		for _, path := range []string{"new", "new/out"} {
			if uid := ownerOf(t, filepath.Join(dir, path)); uid != otherUID {
				t.Errorf("%s belongs to user %d", path, uid)
			}
		}
		wantNoCopies(t, b.worker.dirs)
		if left, _ := filepath.Glob(filepath.Join(b.worker.dirs.root, "jobs", "*"+resultFile)); len(left) > 0 {
			t.Errorf("results are left: %v", left)
		}
	})
}

// The worker is root, and uses no file for a command that the command's user couldn't use.
func TestACommandOfAnotherUserGetsNoFileThroughItsWorker(t *testing.T) {
	t.Parallel()
	private := t.TempDir() // of root
	writeFile(t, filepath.Join(private, "file"), "private")
	asOther(t, Config{Slots: 2}, func(b *harness, l *leaderEnd) {
		t := b.t
		file := filepath.Join(private, "file")
		list := map[string]*dtaskv1.TaskBody{
			"standard input":     {Command: []string{"cat"}, Stdin: file},
			"input":              {Command: []string{"cat"}, Inputs: []string{file}},
			"result by a link":   shell("ln -s " + file + " $DTASK_RESULT_FILE"),
			"output":             {Run: "echo x > $DTASK_OUTPUT", Output: filepath.Join(private, "out")},
			"output in a new":    {Run: "echo x > $DTASK_OUTPUT", Output: filepath.Join(private, "new", "out")},
			"directory":          {Run: "cat file", Cwd: private},
			"file":               shell("cat " + file),
			"the work directory": shell("ls " + b.worker.dirs.root),
			"the logs":           shell("ls " + b.worker.dirs.logs()),
			"another attempt":    shell("touch ../7-99-1"),
		}
		var names []string
		for name, body := range list {
			l.assign(t, work{task: uint32(len(names)), body: body})
			names = append(names, name)
		}
		for _, o := range l.outcomes(t, len(list)) {
			name := names[o.GetAttempt().GetTask()]
			if o.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED || !strings.Contains(strings.ToLower(o.GetError()), "permission denied") {
				t.Errorf("%s: got %v", name, o)
			}
		}
		if left, err := os.ReadDir(private); err != nil || len(left) != 1 {
			t.Errorf("the private directory has %v, %v", left, err)
		}
	})
}

// A checkpoint is restored for the user that runs commands now.
func TestACheckpointBelongsToTheUserOfTheCommand(t *testing.T) {
	t.Parallel()
	asOther(t, Config{Slots: 1}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 1, body: shell("cd $DTASK_CHECKPOINT_DIR; mkdir -m 700 d; echo kept > d/f; chmod 600 d/f; exit 1")})
		c := l.checkpoint(t)
		l.awaitOutcomes(t, 1)
		dir := b.worker.dirs.checkpoint(cluster, ref{7, 1, 1})
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		l.again(t, c, work{task: 1, body: shell(`cd $DTASK_CHECKPOINT_DIR; cat d/f; echo more >> d/f; echo $(stat -c %u . d d/f) $(cat d/f)`)})
		if o := l.outcome(t); string(o.GetResult()) != "54321 54321 54321 kept more" {
			t.Errorf("got %v", o)
		}

		// One that is left of a worker with another user is replaced.
		left := b.worker.dirs.checkpoint(cluster, ref{7, 2, 1})
		writeFile(t, filepath.Join(left, "file"), "of root")
		l.assign(t, work{task: 2, body: shell(`cd $DTASK_CHECKPOINT_DIR; ls -A; touch own; echo ok $(ls)`)})
		if o := l.outcome(t); string(o.GetResult()) != "ok own" {
			t.Errorf("got %v", o)
		}
	})
}

func TestAWorkerWhoseDirectoryTheUserCannotReachDoesNotStart(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		asOther(t, Config{}, nil) // it does not start anyway
		return
	}
	parent := t.TempDir()
	if err := os.Chmod(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "w")
	w, err := New(Config{Join: []string{"127.0.0.1:1"}, Name: "w", RunAs: otherUser, WorkDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("ok", returns)
	want := fmt.Sprintf("user 54321 can't reach the work directory %s: set --work-dir to one below /var/lib", dir)
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// A hard link makes a file of another user a part of the directory.
func TestNoFileOfAnotherUserIsPacked(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		asOther(t, Config{}, nil) // without root, there is no other user
		return
	}
	user, err := runAs(otherUser)
	if err != nil {
		t.Fatal(err)
	}
	private, dir := filepath.Join(t.TempDir(), "private"), openDir(t, 0o700)
	writeFile(t, private, "of root")
	if err := errors.Join(user.Own(dir), os.Link(private, filepath.Join(dir, "linked"))); err != nil {
		t.Fatal(err)
	}
	if err := pack(new(bytes.Buffer), dir, user); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v", err)
	}
}
