package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dtask/dtask/test/programfile"
)

func TestAProgramEndsWithItsExitCode(t *testing.T) {
	t.Parallel()
	for _, code := range []int{0, 1, 75, 255} {
		p := shell(t, "exit "+strconv.Itoa(code))
		exit, err := programs.Run(t.Context(), p.Spec)
		if err != nil || exit.Code != code || exit.Signal != "" || exit.OOM {
			t.Errorf("exit %d: got %+v, %v", code, exit, err)
		}
	}
}

func TestASignalIsNamed(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"SIGSEGV": "kill -SEGV $$", "SIGKILL": "kill -KILL $$", "SIGTERM": "kill -TERM $$"} {
		exit, err := programs.Run(t.Context(), shell(t, text).Spec)
		if err != nil || exit.Code != -1 || exit.Signal != name || exit.OOM {
			t.Errorf("%s: got %+v, %v", name, exit, err)
		}
	}
}

func TestOutputIsStreamed(t *testing.T) {
	t.Parallel()
	stdout, stderr := newOutput(), newOutput()
	feed, feeder := io.Pipe()
	p := shell(t, "echo one; read x; echo two; echo bad >&2")
	p.Stdin, p.Stdout, p.Stderr = feed, stdout, stderr
	done := p.background(t.Context())
	stdout.waitFor(t, "one\n") // before the program continues
	if _, err := feeder.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	_ = feeder.Close()
	if r := wait(t, done); r.err != nil {
		t.Fatal(r.err)
	}
	if got := stdout.String(); got != "one\ntwo\n" || len(stdout.chunks) < 2 {
		t.Errorf("standard output: %q in chunks %q", got, stdout.chunks)
	}
	if got := stderr.String(); got != "bad\n" {
		t.Errorf("standard error: %q", got)
	}
}

func TestOneWriterForBothStreamsSeesTheProgramsOrder(t *testing.T) {
	t.Parallel()
	var both bytes.Buffer
	p := shell(t, "for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; done")
	p.Stdout, p.Stderr = &both, &both
	if _, err := programs.Run(t.Context(), p.Spec); err != nil {
		t.Fatal(err)
	}
	want := "out1\nerr1\nout2\nerr2\nout3\nerr3\nout4\nerr4\nout5\nerr5\n"
	if both.String() != want {
		t.Errorf("got %q", both.String())
	}
}

func TestTheEnvironmentIsExactlyThatOfTheSpec(t *testing.T) {
	t.Setenv("DTASK_SECRET_OF_THE_WORKER", "canary")
	var out bytes.Buffer
	env := []string{"A=1", "B=two words", "RAW=\xff\xfe", "PATH=" + DefaultPath}
	_, err := programs.Run(t.Context(), Spec{Argv: []string{"env"}, Env: env, Dir: t.TempDir(), Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	slices.Sort(got)
	slices.Sort(env)
	if !slices.Equal(got, env) {
		t.Errorf("got %q, want %q", got, env)
	}
}

func TestInputComesFromAReaderOrAFile(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("0123456789abcdef"), 20_000) // more than a pipe holds
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, big, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, in := range map[string]struct {
		stdin io.Reader
		want  int
	}{
		"reader": {bytes.NewReader(big), len(big)},
		"file":   {file, len(big)},
		"none":   {nil, 0},
	} {
		var out bytes.Buffer
		p := shell(t, "cat")
		p.Stdin, p.Stdout = in.stdin, &out
		if _, err := programs.Run(t.Context(), p.Spec); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if out.Len() != in.want {
			t.Errorf("%s: got %d bytes, want %d", name, out.Len(), in.want)
		}
	}
}

func TestAProgramNeedNotReadItsInput(t *testing.T) {
	t.Parallel()
	p := shell(t, "exit 3")
	p.Stdin = bytes.NewReader(make([]byte, 10<<20))
	if exit, err := programs.Run(t.Context(), p.Spec); err != nil || exit.Code != 3 {
		t.Errorf("got %+v, %v", exit, err)
	}
}

func TestAnOutputFileIsPassedToTheProgram(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := shell(t, "echo hello; echo there >&2")
	p.Stdout, p.Stderr = file, file
	if _, err := programs.Run(t.Context(), p.Spec); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file.Name()); string(got) != "hello\nthere\n" {
		t.Errorf("got %q", got)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestAWriterThatFailsDoesNotEndTheProgram(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	p := shell(t, "i=0; while [ $i -lt 2000 ]; do echo 'a line that fills the pipe up, one of many of its kind'; i=$((i+1)); done; exit 7")
	p.Stdout = failingWriter{full}
	exit, err := programs.Run(t.Context(), p.Spec)
	if !errors.Is(err, full) || exit.Code != 7 {
		t.Errorf("got %+v, %v", exit, err)
	}
}

func TestTheLastLineOfALongOutputIsKept(t *testing.T) {
	t.Parallel()
	lines := NewLines(nil)
	p := shell(t, "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done")
	p.Stdout = lines
	if _, err := programs.Run(t.Context(), p.Spec); err != nil {
		t.Fatal(err)
	}
	if last := lines.Finish(); last != "line 4999" {
		t.Errorf("last line %q", last)
	}
}

func TestAProgramIsNotStartedTooLate(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		before time.Duration
		want   error
	}{
		"an instant that has passed":   {Monotonic(), ErrTooLate},
		"an instant in the far future": {Monotonic() + time.Hour, nil},
	} {
		path := filepath.Join(t.TempDir(), "started")
		_, err := programs.Run(t.Context(), Spec{Argv: []string{"/bin/touch", path}, Dir: "/", StartBefore: x.before})
		if !errors.Is(err, x.want) {
			t.Errorf("%s: got error %v, want %v", name, err, x.want)
		}
		if _, err := os.Stat(path); (err == nil) != (x.want == nil) {
			t.Errorf("%s: the program has started: %v", name, err == nil)
		}
	}
}

func TestAProgramThatCannotStartIsAStartError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		programfile.Write(t, path, text, mode)
		return path
	}
	plain := file("plain", "x", 0o600)
	env := []string{"PATH=relative:" + DefaultPath}
	for name, c := range map[string]struct {
		spec Spec
		want error
	}{
		"not found":           {Spec{Argv: []string{"no-such-program"}, Dir: dir}, fs.ErrNotExist},
		"path not found":      {Spec{Argv: []string{"/no/such/program"}, Dir: dir}, fs.ErrNotExist},
		"permission":          {Spec{Argv: []string{plain}, Dir: dir}, fs.ErrPermission},
		"a directory":         {Spec{Argv: []string{dir}, Dir: dir}, syscall.EISDIR},
		"not a program":       {Spec{Argv: []string{file("text", "\x01\x02", 0o700)}, Dir: dir}, syscall.ENOEXEC},
		"missing interpreter": {Spec{Argv: []string{file("script", "#!/no/such/shell\n", 0o700)}, Dir: dir}, fs.ErrNotExist},
		"no directory":        {Spec{Argv: []string{"true"}, Dir: filepath.Join(dir, "gone")}, fs.ErrNotExist},
		"file as directory":   {Spec{Argv: []string{"true"}, Dir: plain}, syscall.ENOTDIR},
		"too long":            {Spec{Argv: script(strings.Repeat("x", 1<<20)), Dir: dir}, syscall.E2BIG},
		"nothing":             {Spec{Dir: dir}, errNoArgv},
		"NUL in an argument":  {Spec{Argv: []string{"true", "a\x00b"}, Dir: dir}, errNUL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.spec.Env = env
			_, err := programs.Run(t.Context(), c.spec)
			var start *StartError
			if !errors.As(err, &start) || !errors.Is(err, c.want) {
				t.Errorf("got %v, want a StartError that is %v", err, c.want)
			}
		})
	}
}

func TestAnEnvironmentEntryNeedsANameAndNoNUL(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"", "NAME", "=value", "A=b\x00c"} {
		_, err := programs.Run(t.Context(), Spec{Argv: script("true"), Env: []string{entry}, Dir: t.TempDir()})
		if !errors.Is(err, errEnvEntry) {
			t.Errorf("%q: got %v", entry, err)
		}
	}
}

func TestARelativeProgramStartsAtTheWorkingDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	programfile.Write(t, filepath.Join(dir, "tool"), "#!/bin/sh\npwd\n", 0o700)
	var out bytes.Buffer
	exit, err := programs.Run(t.Context(), Spec{Argv: []string{"./tool"}, Dir: dir, Stdout: &out})
	if err != nil || exit.Code != 0 || strings.TrimSpace(out.String()) != dir {
		t.Errorf("got %+v, %v, %q, want %q", exit, err, out.String(), dir)
	}
}

func TestAProgramIsIsolatedFromItsWorker(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := shell(t, `umask
ulimit -c
grep -E '^(NoNewPrivs|SigIgn|SigBlk):' /proc/self/status | tr -d '\t' | tr '\n' ' '; echo
ls -m /proc/$$/fd
grep flags /proc/self/fdinfo/1
cut -d' ' -f5,6 /proc/$$/stat; echo $$ $PPID`)
	mask := uint32(0o027)
	p.Stdout, p.Umask = &out, &mask
	if exit, err := programs.Run(t.Context(), p.Spec); err != nil || exit.Code != 0 {
		t.Fatalf("got %+v, %v", exit, err)
	}
	lines := strings.Split(out.String(), "\n")
	// Signals 32 to 34 belong to the C library: Go leaves them as this process
	// inherited them.
	lines[2] = regexp.MustCompile(`SigIgn:0{7}[0-7][08]`).ReplaceAllString(lines[2], "SigIgn:000000000")
	for i, want := range []string{
		"0027", "0", "SigBlk:0000000000000000 SigIgn:0000000000000000 NoNewPrivs:1 ", "0, 1, 2", "flags:\t01",
	} {
		if strings.TrimLeft(lines[i], "0") != strings.TrimLeft(want, "0") {
			t.Errorf("line %d: got %q, want %q", i, lines[i], want)
		}
	}
	// The program has a group of its own, and the session of its supervisor.
	if lines[5] != lines[6] {
		t.Errorf("group and session are %q, want those of %q", lines[5], lines[6])
	}
}

func TestNothingRunsWhenTheContextHasEnded(t *testing.T) {
	t.Parallel()
	cause := errors.New("cancelled before")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	p := shell(t, "touch ran")
	if _, err := programs.Run(ctx, p.Spec); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "ran")); err == nil {
		t.Error("the program ran")
	}
}

// Not parallel: it counts the descriptors and children of the whole process.
func TestAHundredConcurrentProgramsLeaveNothingBehind(t *testing.T) {
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	if _, err := programs.Run(t.Context(), shell(t, "true").Spec); err != nil { // opens everything that stays open
		t.Fatal(err)
	}
	before, others := descriptors(), childrenOf(t, os.Getpid()) // idle supervisors of other tests
	var pool Pool
	var all sync.WaitGroup
	for i := range 100 {
		p := shell(t, "read x; echo $x; sleep 100 & exit "+strconv.Itoa(i))
		all.Go(func() {
			var out bytes.Buffer
			p.Stdin, p.Stdout, p.Stderr = strings.NewReader(strconv.Itoa(i)+"\n"), &out, io.Discard
			exit, err := pool.Run(t.Context(), p.Spec)
			if err != nil || exit.Code != i || out.String() != strconv.Itoa(i)+"\n" {
				t.Errorf("run %d: got %+v, %v, %q", i, exit, err, out.String())
			}
			p.wantGone(t)
		})
	}
	all.Wait()
	pool.Close()
	if after := descriptors(); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	for _, p := range childrenOf(t, os.Getpid()) {
		if !slices.ContainsFunc(others, func(o proc) bool { return o.pid == p.pid }) {
			t.Errorf("leftover child: %+v", p)
		}
	}
}
