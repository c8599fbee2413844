package process

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dtask/dtask/test/programfile"
)

// other is a user without an account.
var other = &User{Name: "54321", UID: 54321, GID: 54322, Groups: []uint32{54323}}

// asRoot reports whether this test runs as root. If it doesn't, it checks that another
// user is refused.
func asRoot(t *testing.T) bool {
	t.Helper()
	err := other.Check()
	if os.Geteuid() == 0 {
		if err != nil {
			t.Fatal(err)
		}
		return true
	}
	if err == nil || !strings.Contains(err.Error(), "start the worker as root") {
		t.Errorf("without root: %v", err)
	}
	return false
}

// openDir makes a directory that all users can reach, which belongs to a user.
func openDir(t *testing.T, u *User) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o711), os.Chmod(dir, 0o711), u.Own(dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// otherPool returns a pool for another user.
func otherPool(t *testing.T) *Pool {
	t.Helper()
	pool := newPool(t)
	pool.User = other
	return pool
}

// otherShell is shell in a directory of the other user.
func otherShell(t *testing.T, text string) *program {
	t.Helper()
	p := shell(t, text)
	p.Dir = openDir(t, other)
	return p
}

func TestAProgramOfAnotherUserHasNoRightsOfItsWorker(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	want := strings.Join([]string{
		"54321 54322 54322 54323", "Uid: 54321 54321 54321 54321", "Gid: 54322 54322 54322 54322", "Groups: 54323",
		"CapInh: 0000000000000000", "CapPrm: 0000000000000000", "CapEff: 0000000000000000", "CapBnd: 0000000000000000", "CapAmb: 0000000000000000",
		"NoNewPrivs: 1", "0027", "54321 640", "input", "to a path", "",
	}, "\n")
	pool := otherPool(t)
	mask := uint32(0o27)
	for range 2 { // the second one under the same supervisor
		var out bytes.Buffer
		p := otherShell(t, `echo $(id -u) $(id -g) $(id -G); grep -e Uid -e Gid -e Groups -e Cap -e NoNewPrivs /proc/self/status | tr -s ' \t' ' ' | sed 's/ $//'
umask; echo x > file; stat -c '%u %a' file; cat /dev/stdin; echo to a path > /dev/stderr`)
		p.Umask, p.Stdin, p.Stdout, p.Stderr = &mask, strings.NewReader("input\n"), &out, &out
		exit, err := pool.Run(t.Context(), p.Spec)
		if err != nil || exit.Code != 0 || out.String() != want {
			t.Errorf("got %+v, %v:\n%s\nwant:\n%s", exit, err, out.String(), want)
		}
	}
}

func TestATreeOfAnotherUserIsKilled(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	const tree = "trap '' TERM; setsid sleep 1000 & echo $PPID; sleep 1000"
	t.Run("by its context", func(t *testing.T) {
		t.Parallel()
		p, out := otherShell(t, tree), newOutput()
		p.Stdout = out
		ctx, cancel := context.WithCancel(t.Context())
		done := p.runIn(ctx, otherPool(t))
		out.waitFor(t, "\n")
		cancel()
		if r := wait(t, done); !errors.Is(r.err, context.Canceled) || r.exit.Signal != "SIGKILL" {
			t.Errorf("got %+v", r)
		}
		p.wantGone(t)
	})
	t.Run("after its supervisor", func(t *testing.T) {
		t.Parallel()
		p, out := otherShell(t, tree), newOutput()
		p.Stdout = out
		done := p.runIn(t.Context(), otherPool(t))
		out.waitFor(t, "\n")
		pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the second process runs", func() bool { return len(p.alive(t)) >= 3 })
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if r := wait(t, done); r.err == nil {
			t.Errorf("got %+v", r)
		}
		p.wantGone(t)
	})
	t.Run("which it can't kill", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		p := otherShell(t, "kill -KILL $PPID; cat /proc/$PPID/environ; echo alive")
		p.Stdout = &out
		if exit, err := otherPool(t).Run(t.Context(), p.Spec); err != nil || exit.Code != 0 || out.String() != "alive\n" {
			t.Errorf("got %+v, %v: %q", exit, err, out.String())
		}
	})
}

func TestAStartErrorNamesTheUserThatNeedsAPermission(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := openDir(t, nil)
	program, closed := filepath.Join(dir, "program"), filepath.Join(dir, "closed")
	programfile.Write(t, program, "#!/bin/sh\n", 0o700)
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		argv []string
		dir  string
		want string
	}{
		"a program":                {[]string{program}, dir, "starting " + program},
		"a directory":              {script("true"), closed, "starting in directory " + closed},
		"a directory in a private": {script("true"), filepath.Join(closed, "x"), "starting in directory " + closed + "/x"},
	} {
		_, err := otherPool(t).Run(t.Context(), Spec{Argv: c.argv, Dir: c.dir, Env: []string{"PATH=" + DefaultPath}})
		if err == nil || !strings.HasPrefix(err.Error(), c.want+":") || !strings.HasSuffix(err.Error(), "permission denied: user 54321 needs the permission") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The permissions of one goroutine never reach another one.
func TestFilesAreUsedWithThePermissionsOfTheUser(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := openDir(t, other)
	private := filepath.Join(openDir(t, nil), "private")
	if err := os.WriteFile(private, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() error {
		_, err := os.ReadFile(private)
		return err
	}
	var running sync.WaitGroup
	for i := range 20 {
		running.Go(func() {
			path := filepath.Join(dir, strconv.Itoa(i))
			err := other.Do(func() error {
				if err := read(); !errors.Is(err, fs.ErrPermission) {
					t.Errorf("another user's file: %v", err)
				}
				return os.WriteFile(path, nil, 0o600)
			})
			info, statErr := os.Stat(path)
			if err != nil || statErr != nil {
				t.Error(err, statErr)
				return
			}
			if s := info.Sys().(*syscall.Stat_t); s.Uid != other.UID || s.Gid != other.GID {
				t.Errorf("the file belongs to %d:%d", s.Uid, s.Gid)
			}
		})
		running.Go(func() {
			if err := read(); err != nil {
				t.Errorf("the worker's own file: %v", err)
			}
		})
	}
	running.Wait()
	failure := errors.New("from the function")
	if err := other.Do(func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
}

// A capability can open what the user could not, such as /dev/kmsg.
func TestFilesAreUsedWithoutTheCapabilitiesOfTheWorker(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	err := other.Do(func() error {
		caps, err := capabilities()
		if caps[0].Effective != 1<<unix.CAP_KILL || caps[1].Effective != 0 {
			t.Errorf("in effect: %x %x", caps[1].Effective, caps[0].Effective)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	onOwnThread(t, func() error {
		own, err := currentIdentity()
		if err != nil {
			return err
		}
		if err := errors.Join(other.assume(own.caps), own.resume()); err != nil {
			return err
		}
		resumed, err := currentIdentity()
		if !slices.Equal(resumed.groups, own.groups) || resumed.caps != own.caps {
			t.Errorf("got %+v after %+v", resumed, own)
		}
		return err
	})
}

func TestAProgramOfAnotherUserHasNoKeyOfItsWorker(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	onOwnThread(t, func() error {
		before, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true)
		if err != nil {
			return leaveSessionKeyring() // this machine has none, which is no error
		}
		if err := leaveSessionKeyring(); err != nil {
			return err
		}
		after, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true)
		if before == after {
			t.Errorf("the session keyring is still %d", after)
		}
		return err
	})
}

// onOwnThread calls f on a thread that nothing uses after it.
func onOwnThread(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAUserIsFoundByNameOrNumber(t *testing.T) {
	t.Parallel()
	nobody, err := LookupUser("nobody")
	if err != nil {
		t.Fatal(err)
	}
	byNumber, err := LookupUser(strconv.FormatUint(uint64(nobody.UID), 10))
	if err != nil || byNumber.Name != "nobody" || byNumber.GID != nobody.GID || !slices.Equal(byNumber.Groups, nobody.Groups) || byNumber.Home != nobody.Home {
		t.Errorf("got %+v, %v; want %+v", byNumber, err, nobody)
	}
	grouped, err := LookupUser("nobody:54322")
	if err != nil || grouped.UID != nobody.UID || grouped.GID != 54322 {
		t.Errorf("got %+v, %v", grouped, err)
	}
	unknown, err := LookupUser("54321:54322")
	if err != nil || unknown.UID != 54321 || unknown.GID != 54322 || len(unknown.Groups) > 0 || unknown.Name != "54321" {
		t.Errorf("got %+v, %v", unknown, err)
	}
	for text, want := range map[string]string{
		"54321":             "user 54321 has no account: write 54321:GROUP",
		"no-such-user":      `unknown user "no-such-user": create it, or write UID:GID`,
		"nobody:no-such":    `unknown group "no-such": create it, or write its number`,
		"":                  `unknown user ""`,
		"root":              "name another user",
		"0:54322":           "name another user",
		"4294967295:54322":  `invalid user or group number "4294967295"`,
		"54321:99999999999": `invalid user or group number "99999999999"`,
	} {
		if u, err := LookupUser(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v; want %q", text, u, err, want)
		}
	}
}
