package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/leak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(leak.Patient{M: m})
}

// setup returns an app with the given environment variables, and its output.
func setup(t *testing.T, env map[string]string) (a *app, stdout, stderr *bytes.Buffer) {
	t.Helper()
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	return &app{output: output{
		in: strings.NewReader(""), out: stdout, err: stderr,
		getenv: func(name string) string { return env[name] }, now: func() time.Time { return noon },
	}}, stdout, stderr
}

// A signalWriter closes a channel after a text was written.
type signalWriter struct {
	bytes.Buffer

	text string
	seen chan struct{}
}

func (w *signalWriter) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if w.text != "" && strings.Contains(w.String(), w.text) {
		w.text = ""
		close(w.seen)
	}
	return n, err
}

// interrupted runs a command at a fake leader, interrupts it when standard error contains
// text, and returns what standard error contains at the end.
func interrupted(t *testing.T, text string, args ...string) string {
	t.Helper()
	addr, done, err := newFakeLeader().serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	a, _, _ := setup(t, map[string]string{"DTASK_ADDR": addr})
	stderr := &signalWriter{text: text, seen: make(chan struct{})}
	a.err = stderr
	interruptWhen(t, a, stderr.seen, args...)
	return stderr.String()
}

// interruptWhen runs a command and interrupts it when a channel is closed.
func interruptWhen(t *testing.T, a *app, seen <-chan struct{}, args ...string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	code := make(chan int, 1) // one exit code
	go func() { code <- run(ctx, args, a) }()
	<-seen
	interrupt()
	if got := <-code; got != exitInterrupted {
		t.Errorf("got exit code %d, want %d", got, exitInterrupted)
	}
}

func TestAnInterruptedWaitExitsWith130AndAHint(t *testing.T) {
	t.Parallel()
	got := interrupted(t, "job 42: ", "wait", "42")
	if !strings.Contains(got, "interrupted\nhint: the job is still running: run dtaskctl wait 42\n") {
		t.Errorf("got %q", got)
	}
}

func TestColorsFollowTheFlagThenTheEnvironmentThenTheTerminal(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		flag string
		env  map[string]string
		want bool
	}{
		"no terminal":             {"auto", nil, false},
		"forced":                  {"auto", map[string]string{"FORCE_COLOR": "1"}, true},
		"forced off":              {"auto", map[string]string{"CLICOLOR_FORCE": "0"}, false},
		"NO_COLOR beats force":    {"auto", map[string]string{"FORCE_COLOR": "1", "NO_COLOR": "1"}, false},
		"always beats NO_COLOR":   {"always", map[string]string{"NO_COLOR": "1"}, true},
		"never beats force":       {"never", map[string]string{"FORCE_COLOR": "1"}, false},
		"empty NO_COLOR is unset": {"auto", map[string]string{"NO_COLOR": "", "FORCE_COLOR": "1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, out, _ := setup(t, tt.env)
			a.color = colorMode(tt.flag)
			if got := a.colored(out); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}

func TestAddressesComeFromTheFlagOrTheEnvironment(t *testing.T) {
	t.Parallel()
	a, _, _ := setup(t, map[string]string{"DTASK_ADDR": "a:1, b:2"})
	if got := strings.Join(a.seeds(), " "); got != "a:1 b:2" {
		t.Errorf("from the environment: got %q", got)
	}
	a.addrs = []string{"c:3,d:4", "e:5"}
	if got := strings.Join(a.seeds(), " "); got != "c:3 d:4 e:5" {
		t.Errorf("from the flag: got %q", got)
	}
}

func TestABatchIsAValidJobWithAllPriorities(t *testing.T) {
	t.Parallel()
	job, err := inlineJob{batch: 500, randomPriority: true}.build(spec.Options{Owner: "o"})
	if err != nil {
		t.Fatal(err)
	}
	if faults := spec.Check(job); faults != nil {
		t.Fatal(faults)
	}
	seen := make(map[dtaskv1.Priority]int)
	for _, task := range job.GetTasks() {
		seen[job.GetHeader().GetPolicies()[task.GetPolicy()].GetPriority()]++
	}
	if len(job.GetTasks()) != 500 || len(seen) != 4 {
		t.Errorf("got %d tasks with priorities %v, want 500 with all four", len(job.GetTasks()), seen)
	}
}

func TestProgressIsALineAtMostEveryTenSeconds(t *testing.T) {
	t.Parallel()
	a, _, stderr := setup(t, nil)
	now := noon
	a.now = func() time.Time { return now }
	p := a.newProgress("job 1")
	for i := range int64(60) { // a change each second
		p.update(step{done: i, total: 60})
		now = now.Add(time.Second)
	}
	p.update(step{done: 59, total: 60})
	p.end()
	if got := strings.Count(stderr.String(), "\n"); got != 7 {
		t.Errorf("got %d lines, want 7:\n%s", got, stderr)
	}
}

func TestAnOwnerIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	if got := clip("aaé", 3); got != "aa" {
		t.Errorf("got %q, want aa", got)
	}
}
