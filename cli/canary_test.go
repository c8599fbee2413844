package cli

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/auth"
)

// canaries are secrets that must appear in no output.
type canaries map[string]string // by what they are

// check reports each canary that a text contains.
func (c canaries) check(t *testing.T, where, text string) {
	t.Helper()
	for what, secret := range c {
		if strings.Contains(text, secret) {
			t.Errorf("%s contains the secret of %s", where, what)
		}
	}
}

func TestNoSecretAppearsInWhatCommandsPrintOrInContexts(t *testing.T) {
	t.Parallel()
	dir, config := t.TempDir(), t.TempDir()
	leader, done, err := newSecuredLeader(filepath.Join(dir, "tls"), fakeCluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	if err := leader.writeJoinStrings(dir, fakeCluster, leader.ca); err != nil {
		t.Fatal(err)
	}
	secrets := canaries{}
	for _, name := range []string{"ok", "two", "expired", "revoked", "worker", "cut", "mistyped"} {
		text, err := os.ReadFile(filepath.Join(dir, name+".join")) //nolint:gosec // a file of this test
		if err != nil {
			t.Fatal(err)
		}
		secrets["join string "+name] = string(text[90:120])
	}
	token := auth.NewToken().Text().Reveal()
	secrets["a token"] = token[20:40]
	env := map[string]string{"XDG_CONFIG_HOME": config, "USER": "ana"}
	exec := func(args ...string) {
		a, stdout, stderr := setup(t, env)
		code := run(t.Context(), args, a)
		for _, out := range []*bytes.Buffer{stdout, stderr} {
			secrets.check(t, strings.Join(args[:1], " "), out.String())
		}
		if code == exitOK && len(args) > 1 && args[0] == "login" {
			made, err := os.ReadFile(filepath.Join(config, "dtask", fakeCluster[:8]+".token")) //nolint:gosec // a file of this test
			if err != nil {
				t.Fatal(err)
			}
			secrets["the token of the login"] = string(made[20:40])
			secrets.check(t, "login", stdout.String()+stderr.String())
		}
	}
	for _, name := range []string{"cut", "mistyped", "worker", "expired", "revoked", "ok", "ok"} {
		text, err := os.ReadFile(filepath.Join(dir, name+".join")) //nolint:gosec // a file of this test
		if err != nil {
			t.Fatal(err)
		}
		exec("login", strings.TrimSpace(string(text)))
		exec("login", strings.TrimSpace(string(text)), "twice")
		exec("--addr", strings.TrimSpace(string(text)), "list")
	}
	for _, args := range [][]string{
		{"whoami"}, {"context", "list"}, {"context", "show", "-o", "json"}, {"token", "list"}, {"join-token", "list", "--all"}, {"list"},
	} {
		exec(args...)
	}
	for _, bad := range []string{token, token[1:], token[:len(token)-1]} {
		env["DTASK_TOKEN"] = bad
		exec("whoami")
	}
	contexts, err := os.ReadFile(filepath.Join(config, "dtask", contextsFile)) //nolint:gosec // a file of this test
	if err != nil {
		t.Fatal(err)
	}
	secrets.check(t, contextsFile, string(contexts))
	err = filepath.WalkDir(filepath.Join(config, "dtask"), func(path string, d fs.DirEntry, err error) error {
		if info, infoErr := d.Info(); err == nil && infoErr == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
