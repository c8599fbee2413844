package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dtask/dtask/internal/secretname"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// secretsDir makes a directory with these secrets.
func secretsDir(t *testing.T, secrets map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "secrets")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range secrets {
		writeFile(t, filepath.Join(dir, name), text)
	}
	return dir
}

// naming returns a policy that names these secrets.
func naming(names ...string) *dtaskv1.TaskPolicy {
	return &dtaskv1.TaskPolicy{Secrets: names, TimeoutMs: 60_000}
}

// describe is a shell text that prints a secret with the modes of its file and directory.
const describe = `f=$DTASK_SECRET_API_KEY_FILE; echo "$(cat $f) $(stat -c %a $f) $(stat -c %a $(dirname $f)) $f"`

// wantNoCopies checks that no copy of a secret is left.
func wantNoCopies(t *testing.T, d *dirs) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(d.secrets, "*"+secretsSuffix)); len(left) > 0 {
		t.Errorf("copies of secrets are left: %v", left)
	}
}

func TestACommandGetsTheSecretsThatItsTaskNames(t *testing.T) {
	t.Parallel()
	dir := secretsDir(t, map[string]string{"api-key": "first", "db": "other"})
	withLeader(t, Config{SecretsDir: dir}, func(b *harness, l *leaderEnd) {
		t := b.t
		if got := l.hello.GetHello().GetSecrets(); !slices.Equal(got, []string{"api-key", "db"}) {
			t.Errorf("announced %v", got)
		}
		// Only the names of secrets are in the environment, and only of those that are named.
		environment := shell("env | grep -c -e first -e second -e other -e SECRET_DB || true")
		for i, text := range []string{"first", "second"} {
			writeFile(t, filepath.Join(dir, "api-key"), text)
			l.assign(t, work{task: uint32(2 * i), body: shell(describe), policy: naming("api-key")})
			o := l.outcome(t)
			file, found := strings.CutPrefix(string(o.GetResult()), text+" 400 700 ")
			if _, err := os.Stat(filepath.Dir(file)); !found || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("got %q and the error %q; its directory: %v", o.GetResult(), o.GetError(), err)
			}
			l.assign(t, work{task: uint32(2*i + 1), body: environment, policy: naming("api-key")})
			if o := l.outcome(t); string(o.GetResult()) != "0" {
				t.Errorf("got %s lines of the environment with secrets: %s", o.GetResult(), o.GetError())
			}
		}
		l.assign(t, work{task: 9, body: shell("exit 3"), policy: naming("api-key", "db")})
		if o := l.outcome(t); o.GetExitCode() != 3 {
			t.Errorf("got %v", o)
		}
		wantNoCopies(t, b.worker.dirs)
		if b.logs.has("first") || b.logs.has("second") || !b.logs.has("secrets=\"[api-key db]\"") {
			t.Errorf("the log has contents of secrets, or lacks their names")
		}
	})
}

func TestAnAttemptWithoutItsSecretsDoesNotStart(t *testing.T) {
	t.Parallel()
	dir := secretsDir(t, map[string]string{"api-key": "a", "gone": "b", "open": "c", "grown": "d"})
	cases := []struct{ name, want string }{
		{"gone", "secret gone: " + dir + "/gone has vanished: restore it, or restart this worker"},
		{"open", "secret open: mode 0644 gives access to all users: run chmod o= on it"},
		{"grown", "secret grown: has more than 65536 bytes"},
		{"other", "secret other: this worker does not have it"},
	}
	withLeader(t, Config{SecretsDir: dir}, func(b *harness, l *leaderEnd) {
		t := b.t
		if err := errors.Join(os.Remove(filepath.Join(dir, "gone")), os.Chmod(filepath.Join(dir, "open"), 0o644)); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "grown"), strings.Repeat("x", secretname.MaxBytes+1))
		for i, c := range cases {
			l.assign(t, work{task: uint32(i), body: shell(describe), policy: naming("api-key", c.name)})
			o := l.outcome(t)
			if o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED || !strings.Contains(o.GetError(), c.want) {
				t.Errorf("%s: got %v", c.name, o)
			}
		}
		wantNoCopies(t, b.worker.dirs)
	})
}

func TestAHandlerGetsTheSecretsThatItsTaskNames(t *testing.T) {
	t.Parallel()
	if _, err := (&Task{}).Secret("db"); err == nil {
		t.Error("a task without a worker has a secret")
	}
	dir := secretsDir(t, map[string]string{"db": "contents", "other": "hidden"})
	read := func(_ context.Context, task *Task) ([]byte, error) {
		secret, err := task.Secret("db")
		if err != nil {
			return nil, err
		}
		secret[0] = 'C' // a copy
		again, err := task.Secret("db")
		_, other := task.Secret("other")
		return []byte(string(secret) + " " + string(again) + " " + other.Error()), err
	}
	withHandlers(t, Config{SecretsDir: dir}, map[string]Handler{"read": read}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 1, typ: "read", body: &dtaskv1.TaskBody{}, policy: naming("db")})
		const want = "Contents contents secret other: task t1 does not name it: add it to secrets of the task"
		if o := l.outcome(t); string(o.GetResult()) != want {
			t.Errorf("got %v, want %q", o, want)
		}
		l.assign(t, work{task: 2, typ: "read", body: &dtaskv1.TaskBody{}, policy: naming()})
		if o := l.outcome(t); !strings.Contains(o.GetError(), "secret db: task t2 does not name it") {
			t.Errorf("without a name: got %v", o)
		}
		wantNoCopies(t, b.worker.dirs)
	})
}

func TestSecretsThatOtherUsersCanReadAreRefused(t *testing.T) {
	t.Parallel()
	root := os.Geteuid() == 0 // then the files belong to root
	for name, c := range map[string]struct {
		dir, file os.FileMode
		want      string // "" = accepted
	}{
		"private":                        {0o700, 0o600, ""},
		"read-only":                      {0o500, 0o400, ""},
		"a file for all":                 {0o700, 0o604, "secret db: mode 0604 gives access to all users"},
		"a file that all can write":      {0o700, 0o602, "secret db: mode 0602 gives access to all users"},
		"a directory for all":            {0o705, 0o600, "mode 0705 gives access to all users"},
		"a file of a group":              {0o700, 0o640, map[bool]string{true: "", false: "mode 0640 gives access to its group"}[root]},
		"a directory of a group":         {0o750, 0o600, map[bool]string{true: "", false: "mode 0750 gives access to its group"}[root]},
		"a file that a group can change": {0o700, 0o660, "mode 0660 gives access to its group"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := secretsDir(t, map[string]string{"db": "x"})
			if err := errors.Join(os.Chmod(filepath.Join(dir, "db"), c.file), os.Chmod(dir, c.dir)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(dir, 0o700) }) // to be removed without root, too
			s, err := openSecrets(dir, slog.New(slog.DiscardHandler))
			if c.want == "" && (err != nil || !slices.Equal(s.names, []string{"db"})) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, %v; want %q", s, err, c.want)
			}
		})
	}
}

func TestTheFileOfAnotherUserIsNoSecret(t *testing.T) {
	t.Parallel()
	path := "/" // of root
	if os.Geteuid() == 0 {
		path = t.TempDir()
		if err := os.Chown(path, 54321, -1); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, 0o700); os.Geteuid() == 0 && err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkPrivate(info); err == nil {
		t.Errorf("%s is accepted", path)
	}
}

func TestADirectoryOfSecretsMayHaveOtherFiles(t *testing.T) {
	t.Parallel()
	dir := secretsDir(t, map[string]string{".hidden": "x", "no name": "y", "tls.key": "z", "_1": ""})
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.Symlink("tls.key", filepath.Join(dir, "linked"))); err != nil {
		t.Fatal(err)
	}
	logs := &logBuffer{}
	s, err := openSecrets(dir, slog.New(slog.NewTextHandler(logs, nil)))
	if err != nil || !slices.Equal(s.names, []string{"_1", "linked", "tls.key"}) || !logs.has("no name") {
		t.Errorf("got %v, %v", s, err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openSecrets(dir, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "secret pipe: not a regular file") {
		t.Errorf("with a pipe: %v", err)
	}
	if _, err := openSecrets(filepath.Join(dir, "gone"), slog.New(slog.DiscardHandler)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
}

func TestTheNextStartRemovesTheCopiesOfACrashedWorker(t *testing.T) {
	t.Parallel()
	for name, memory := range map[string]string{"in memory": memoryDir, "on a disk": "/proc"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			d, err := openDirs(root)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.makeSecretDir(memory); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(d.secretCopies(ref{}))) }) // also with a planted bug
			s := &attemptSecrets{dir: d.secretCopies(ref{1, 2, 3}), contents: map[string][]byte{"db": []byte("x")}}
			if err := s.copy(naming("db"), nil); err != nil {
				t.Fatal(err)
			}
			if inMemory := strings.HasPrefix(s.files()["db"], memory); inMemory != (memory == memoryDir) {
				t.Errorf("the copy is %s", s.files()["db"])
			}
			// As the kernel does at the end of a process. A program that another test is starting
			// may still hold the descriptor, and with it the lock: closing ours is not enough.
			if err := errors.Join(unix.Flock(int(d.lock.Fd()), unix.LOCK_UN), d.lock.Close()); err != nil {
				t.Fatal(err)
			}
			next, err := openDirs(root)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v", s.dir, err)
			}
			if err := next.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOnlyDirectoriesOfSecretsAreRemoved(t *testing.T) {
	t.Parallel()
	root, other := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(other, "file"), "x")
	if err := os.Symlink(other, filepath.Join(root, secretsLink)); err != nil {
		t.Fatal(err)
	}
	d, err := openDirs(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(other, "file")); err != nil {
		t.Error(err)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
}
