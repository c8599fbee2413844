package worker

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// withLeader runs a test with one leader in real time, because processes don't
// use virtual time.
func withLeader(t *testing.T, cfg Config, test func(b *harness, l *leaderEnd)) {
	t.Helper()
	withHandlers(t, cfg, map[string]Handler{"ok": returns}, test)
}

// withHandlers is withLeader with these handlers.
func withHandlers(t *testing.T, cfg Config, handlers map[string]Handler, test func(b *harness, l *leaderEnd)) {
	t.Helper()
	n := newRealNetwork(t)
	r := n.listen("n1:1", nil)
	cfg.DrainTimeout = -1
	b := start(t, n, cfg, handlers)
	l := (<-r.sessions).welcome(t, 1)
	defer func() { // an orderly end: another one waits in real time
		b.drain()
		l.serveTillEnd(t)
		if err := <-b.done; err != nil {
			t.Errorf("Run = %v", err)
		}
		n.stopAll()
	}()
	test(b, l)
}

func shell(text string) *dtaskv1.TaskBody { return &dtaskv1.TaskBody{Run: text} }

func TestOutcomesOfCommands(t *testing.T) {
	t.Parallel()
	const succeeded, failedKind, notStarted = dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED
	input := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(input, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name string
		body *dtaskv1.TaskBody
		want *dtaskv1.Outcome
	}{
		{"last line", shell("echo one; echo two; echo; echo ::progress 0.5 half"), &dtaskv1.Outcome{Kind: succeeded, Result: []byte("two")}},
		{"result file", shell("echo line; printf 'a\\nb' > $DTASK_RESULT_FILE"), &dtaskv1.Outcome{Kind: succeeded, Result: []byte("a\nb")}},
		{"huge result file", shell("head -c 5000 /dev/zero > $DTASK_RESULT_FILE"), &dtaskv1.Outcome{Kind: failedKind, Fatal: true, Error: "result file too large: more than 4096 bytes: write it to an output"}},
		{"exit code", shell("echo why >&2; exit 3"), &dtaskv1.Outcome{Kind: failedKind, ExitCode: 3, Error: "exit code 3: why"}},
		{"temporary", shell("exit 75"), &dtaskv1.Outcome{Kind: failedKind, ExitCode: 75, Temporary: true, Error: "exit code 75 (temporary)"}},
		{"signal", shell("kill -SEGV $$"), &dtaskv1.Outcome{Kind: failedKind, Signal: "SEGV", Error: "killed by SIGSEGV"}},
		{"no such program", &dtaskv1.TaskBody{Command: []string{"no-such-program"}}, &dtaskv1.Outcome{Kind: notStarted}},
		{"no such input", &dtaskv1.TaskBody{Run: "cat", Inputs: []string{input + "x"}}, &dtaskv1.Outcome{Kind: notStarted}},
		{"payload", &dtaskv1.TaskBody{Command: []string{"cat"}, Payload: []byte("pay")}, &dtaskv1.Outcome{Kind: succeeded, Result: []byte("pay")}},
		{"input", &dtaskv1.TaskBody{Command: []string{"cat"}, Inputs: []string{input}, Payload: []byte("pay")}, &dtaskv1.Outcome{Kind: succeeded, Result: []byte("from a file")}},
		{"inputs", &dtaskv1.TaskBody{Run: `cat; echo "$DTASK_INPUT" | tr '\n' ' '`, Inputs: []string{"/a", "file:///b"}}, &dtaskv1.Outcome{Kind: succeeded, Result: []byte("/a /b ")}},
		{
			"environment", shell("echo $FROM_JOB $FROM_TASK $DTASK_EXECUTION_ID $DTASK_IDEMPOTENCY_KEY $DTASK_FENCING_TOKEN $DTASK_JOB_NAME $DTASK_TASK_ID $DTASK_WORKER $SECRET"),
			&dtaskv1.Outcome{Kind: succeeded, Result: []byte("yes too 7-11-1 " + cluster + "-7-11 4294967297 seven t11 w1")},
		},
		{"own empty directory", shell("test -z \"$(ls -A)\" && basename $PWD"), &dtaskv1.Outcome{Kind: succeeded, Result: []byte("7-12-1")}},
		{"pipe as result file", shell("mkfifo $DTASK_RESULT_FILE"), &dtaskv1.Outcome{Kind: failedKind, Error: "reading result file: not a regular file"}},
	}
	withLeader(t, Config{Slots: 2}, func(b *harness, l *leaderEnd) {
		t := b.t
		var tasks []work
		for i, c := range cases {
			tasks = append(tasks, work{task: uint32(i), body: c.body, policy: &dtaskv1.TaskPolicy{Env: map[string]string{"FROM_TASK": "too", "DTASK_WORKER": "forged"}, TimeoutMs: 60_000}})
		}
		l.assign(t, tasks...)
		for _, o := range l.outcomes(t, len(cases)) {
			c := cases[o.GetAttempt().GetTask()]
			sameText := o.GetError() == c.want.GetError() || c.want.GetKind() == notStarted && o.GetError() != ""
			if o.GetKind() != c.want.GetKind() || !bytes.Equal(o.GetResult(), c.want.GetResult()) || o.GetExitCode() != c.want.GetExitCode() ||
				o.GetSignal() != c.want.GetSignal() || o.GetTemporary() != c.want.GetTemporary() || o.GetFatal() != c.want.GetFatal() || !sameText {
				t.Errorf("%s: outcome = %v, want %v", c.name, o, c.want)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(b.worker.dirs.root, "jobs", "*")); len(left) > 2 { // a spare directory for each slot
			t.Errorf("got leftover directories of commands %v", left)
		}
	})
}

func TestHowACommandIsExecuted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	input := filepath.Join(dir, "in")
	if err := os.WriteFile(input, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	mask := func(m uint32) *uint32 { return &m }
	cases := map[string]struct {
		body   *dtaskv1.TaskBody
		policy *dtaskv1.TaskPolicy
		want   string // its result; "exit N" or another error
	}{
		"the shell ends at the first failure":  {shell("echo one; false; echo two"), nil, "exit code 1"},
		"another shell does not":               {shell("echo one; false; echo two"), &dtaskv1.TaskPolicy{Shell: []string{"sh", "-c"}}, "two"},
		"options of a shell":                   {shell("echo $-"), &dtaskv1.TaskPolicy{Shell: []string{"/bin/sh", "-uc"}}, "u"},
		"another program as the shell":         {shell("x y"), &dtaskv1.TaskPolicy{Shell: []string{"echo", "text:"}}, "text: x y"},
		"an argument list has no shell":        {&dtaskv1.TaskBody{Command: []string{"echo", "a  b"}}, &dtaskv1.TaskPolicy{Shell: []string{"false"}}, "a  b"},
		"the working directory":                {&dtaskv1.TaskBody{Command: []string{"pwd"}, Cwd: dir}, nil, dir},
		"a working directory that is missing":  {&dtaskv1.TaskBody{Command: []string{"pwd"}, Cwd: dir + "/gone"}, nil, "no such file or directory"},
		"a working directory that is relative": {&dtaskv1.TaskBody{Command: []string{"pwd"}, Cwd: "gone"}, nil, `path "gone" is relative`},
		"standard input":                       {&dtaskv1.TaskBody{Command: []string{"cat"}, Stdin: "file://" + input, Payload: []byte("payload")}, nil, "from a file"},
		"standard input that is missing":       {&dtaskv1.TaskBody{Command: []string{"cat"}, Stdin: input + "2"}, nil, "no such file or directory"},
		"the umask":                            {shell("umask; mkdir " + dir + "/a; stat -c %a " + dir + "/a"), nil, "755"},
		"another umask":                        {shell("umask; mkdir " + dir + "/b; stat -c %a " + dir + "/b"), &dtaskv1.TaskPolicy{Umask: mask(0o077)}, "700"},
		"no umask":                             {shell("umask; mkdir " + dir + "/c; stat -c %a " + dir + "/c"), &dtaskv1.TaskPolicy{Umask: mask(0)}, "777"},
	}
	withLeader(t, Config{Slots: 2}, func(b *harness, l *leaderEnd) {
		t := b.t
		var names []string
		var tasks []work
		for name, c := range cases {
			tasks = append(tasks, work{task: uint32(len(tasks)), body: c.body, policy: c.policy})
			names = append(names, name)
		}
		l.assign(t, tasks...)
		for _, o := range l.outcomes(t, len(cases)) {
			name := names[o.GetAttempt().GetTask()]
			want := cases[name].want
			if string(o.GetResult()) != want && (o.GetError() == "" || !strings.Contains(o.GetError(), want)) {
				t.Errorf("%s: got %q and the error %q, want %q", name, o.GetResult(), o.GetError(), want)
			}
		}
	})
}

func TestOutputsOfCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	withLeader(t, Config{Slots: 1}, func(b *harness, l *leaderEnd) {
		t := b.t
		direct := filepath.Join(dir, "direct")
		old := filepath.Join(dir, "old")
		if err := os.WriteFile(old, []byte("of an earlier run"), 0o600); err != nil {
			t.Fatal(err)
		}
		l.assign(t,
			work{task: 0, body: &dtaskv1.TaskBody{Run: "echo aside > $DTASK_OUTPUT", Output: filepath.Join(dir, "aside")}},
			work{task: 1, body: &dtaskv1.TaskBody{Run: "echo direct > " + direct, Output: direct}},
			work{task: 2, body: &dtaskv1.TaskBody{Run: "true", Output: old}},
			work{task: 3, body: &dtaskv1.TaskBody{Run: "mkdir $DTASK_OUTPUT", Output: filepath.Join(dir, "directory")}},
			work{task: 4, body: &dtaskv1.TaskBody{Run: "true", Output: "relative.txt"}},
		)
		got := l.outcomes(t, 5)
		for number, want := range map[uint64]string{1: "", 2: "", 3: "missing output", 4: "not a regular file", 5: `path "relative.txt" is relative`} {
			if o := got[number]; (o.GetError() == "") != (want == "") || !strings.Contains(o.GetError(), want) {
				t.Errorf("outcome %d = %v, want %q", number, o, want)
			}
		}
		for name, want := range map[string]string{"aside": "aside\n", "direct": "direct\n"} {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
				t.Errorf("%s = %q, %v", name, data, err)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) != 0 {
			t.Errorf("got leftover files %v", left)
		}
	})
}

func TestACancelledCommandIsGoneBeforeItsOutcome(t *testing.T) {
	t.Parallel()
	withLeader(t, Config{Slots: 1}, func(b *harness, l *leaderEnd) {
		t := b.t
		pid := filepath.Join(t.TempDir(), "pid")
		l.assign(t, work{
			task:   1,
			body:   shell("trap '' TERM; (trap '' TERM; sleep 1000) & echo $! > " + pid + ".x; mv " + pid + ".x " + pid + "; echo ready; wait; sleep 1000"),
			policy: &dtaskv1.TaskPolicy{KillGraceMs: 200, TimeoutMs: 600_000},
		})
		l.send(t, &dtaskv1.SessionResponse{LogRequest: &dtaskv1.LogRequest{Id: 1, Attempt: attemptOf(1), Follow: true, Stream: dtaskv1.LogStream_LOG_STREAM_STDOUT}})
		l.next(t, "ready", func(m *dtaskv1.SessionRequest) bool {
			return strings.Contains(logText(m.GetLogData()), "ready")
		})
		l.send(t, &dtaskv1.SessionResponse{Stops: []*dtaskv1.Stop{{Attempt: attemptOf(1), Reason: dtaskv1.StopReason_STOP_REASON_CANCELLED}}})
		if o := l.outcome(t); o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED {
			t.Errorf("outcome = %v", o)
		}
		child, err := os.ReadFile(pid)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(child))); err == nil {
			t.Error("a child of the cancelled command still runs")
		}
	})
}

// A preempted command can save its work after SIGTERM, within kill_grace. Its exit code does
// not make the outcome a success.
func TestACommandThatIsPreemptedGetsSIGTERMAndIsReleased(t *testing.T) {
	t.Parallel()
	withLeader(t, Config{Slots: 1}, func(b *harness, l *leaderEnd) {
		t := b.t
		saved := filepath.Join(t.TempDir(), "saved")
		l.assign(t, work{
			task:   1,
			body:   shell("trap 'echo half > " + saved + "; exit 0' TERM; echo ready; while :; do sleep 0.01; done"),
			policy: &dtaskv1.TaskPolicy{Preemptible: true, KillGraceMs: 60_000, TimeoutMs: 600_000},
		})
		l.send(t, &dtaskv1.SessionResponse{LogRequest: &dtaskv1.LogRequest{Id: 1, Attempt: attemptOf(1), Follow: true, Stream: dtaskv1.LogStream_LOG_STREAM_STDOUT}})
		l.next(t, "ready", func(m *dtaskv1.SessionRequest) bool {
			return strings.Contains(logText(m.GetLogData()), "ready")
		})
		l.send(t, &dtaskv1.SessionResponse{Stops: []*dtaskv1.Stop{{Attempt: attemptOf(1), Reason: dtaskv1.StopReason_STOP_REASON_PREEMPTED}}})
		if o := l.outcome(t); o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED || o.GetError() != ErrPreempted.Error() {
			t.Errorf("outcome = %v, want released", o)
		}
		if text, err := os.ReadFile(saved); err != nil || string(text) != "half\n" {
			t.Errorf("got %q, %v, want what the command saved after SIGTERM", text, err)
		}
	})
}

func TestATimeoutStopsACommand(t *testing.T) {
	t.Parallel()
	withLeader(t, Config{Slots: 1}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 1, body: shell("sleep 1000"), policy: &dtaskv1.TaskPolicy{TimeoutMs: 300}})
		if o := l.outcome(t); o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_TIMED_OUT || o.GetError() != "timed out: ran for 300ms" {
			t.Errorf("outcome = %v", o)
		}
	})
}

func TestLogsAreReadWhileTheyAreWrittenAndAfterwards(t *testing.T) {
	t.Parallel()
	withLeader(t, Config{Slots: 1}, func(b *harness, l *leaderEnd) {
		t := b.t
		gate := filepath.Join(t.TempDir(), "gate")
		l.assign(t, work{task: 1, body: shell("echo one; while [ ! -e " + gate + " ]; do sleep 0.01; done; seq 1 50000; echo err >&2")})
		l.send(t, &dtaskv1.SessionResponse{LogRequest: &dtaskv1.LogRequest{Id: 5, Attempt: attemptOf(1), Follow: true}})
		text, errText, both := "", "", ""
		for end := false; !end; {
			d := l.next(t, "log data", func(m *dtaskv1.SessionRequest) bool { return m.GetLogData() != nil }).GetLogData()
			if text == "" && len(d.GetPieces()) > 0 {
				if err := os.WriteFile(gate, nil, 0o600); err != nil { // the log was followed while the command ran
					t.Fatal(err)
				}
			}
			for _, p := range d.GetPieces() {
				both += string(p.GetData())
				if p.GetStream() == dtaskv1.LogStream_LOG_STREAM_STDERR {
					errText += string(p.GetData())
				} else {
					text += string(p.GetData())
				}
			}
			end = d.GetEnd()
		}
		if !strings.HasPrefix(text, "one\n1\n2\n") || !strings.HasSuffix(text, "49999\n50000\n") || errText != "err\n" {
			t.Errorf("got %d followed bytes ending in %q, and %q", len(text), text[max(0, len(text)-20):], errText)
		}
		again, fault := readWholeLog(t, l, 1, false)
		if again != both || fault != "" {
			t.Errorf("read again: got %d bytes, want the same %d in the same order; %q", len(again), len(both), fault)
		}
		if _, fault := readWholeLog(t, l, 77, true); !strings.Contains(fault, "wrote nothing, or its log was removed") {
			t.Errorf("removed log: got %q", fault)
		}
		l.send(t, &dtaskv1.SessionResponse{LogRequest: &dtaskv1.LogRequest{Id: 78, Attempt: attemptOf(78), Follow: true}})
		if d := l.next(t, "log data", func(m *dtaskv1.SessionRequest) bool { return m.GetLogData().GetId() == 78 }).GetLogData(); !d.GetAbsent() {
			t.Errorf("an attempt that has not arrived: got %v, want that its log is absent", d)
		}
	})
}

func TestOldLogsAreRemovedForNewOnes(t *testing.T) {
	t.Parallel()
	withLeader(t, Config{Slots: 1, LogBytes: 100_000}, func(b *harness, l *leaderEnd) {
		t := b.t
		for i := range uint32(4) {
			l.assign(t, work{task: i, body: shell("head -c 40000 /dev/zero")})
			l.outcome(t)
		}
		for i, kept := range map[uint32]bool{0: false, 2: true, 3: true} {
			text, fault := readWholeLog(t, l, i, false)
			if cut := len(text) < 40_000; kept != (len(text) == 40_000) || !kept && fault == "" && !cut {
				t.Errorf("log %d: got %d bytes, %q; want kept = %v", i, len(text), fault, kept)
			}
		}
		size := int64(0)
		files, _ := filepath.Glob(filepath.Join(b.worker.dirs.logs(), "*", "*"))
		for _, file := range files {
			if info, err := os.Stat(file); err == nil {
				size += info.Size()
			}
		}
		if size == 0 || size > 140_000 {
			t.Errorf("got %d bytes of logs", size)
		}
	})
}

func TestACheckpointOutlivesFailuresAndEndsWithSuccess(t *testing.T) {
	t.Parallel()
	withLeader(t, Config{Slots: 1}, func(b *harness, l *leaderEnd) {
		t := b.t
		run := shell("cd $DTASK_CHECKPOINT_DIR; if [ -e saved ]; then cat saved; else echo mark > saved; exit 1; fi")
		l.assign(t, work{task: 1, body: run})
		if o := l.outcome(t); o.GetExitCode() != 1 {
			t.Fatalf("outcome = %v", o)
		}
		l.send(t, &dtaskv1.SessionResponse{Ack: &dtaskv1.Ack{Through: 1}})
		l.assign(t, work{task: 1, body: run, attempt: 2})
		if o := l.outcome(t); string(o.GetResult()) != "mark" {
			t.Fatalf("outcome = %v", o)
		}
		l.send(t, &dtaskv1.SessionResponse{Ack: &dtaskv1.Ack{Through: 2}})
		dir := b.worker.dirs.checkpoint(cluster, ref{job: 7, task: 1})
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for range 24_000 {
			if _, err := os.Stat(dir); os.IsNotExist(err) {
				return
			}
			<-tick.C
		}
		t.Error("the checkpoint of a completed task was kept")
	})
}

// A slot uses empty directories again. What a command left in its checkpoint
// directory must stay where only its own task finds it, whether or not the command
// took long, and in any of its attempts.
func TestACheckpointNeverReachesAnotherTask(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"of a short command": "", "of a longer command": "sleep 0.1; ", "that is saved on request": "echo ::checkpoint; ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withLeader(t, Config{Slots: 1}, func(b *harness, l *leaderEnd) {
				t := b.t
				// It fails: what it left is kept for the next attempt.
				leave := shell(command + "cat $DTASK_CHECKPOINT_DIR/saved || :; echo $DTASK_TASK_ID >$DTASK_CHECKPOINT_DIR/saved; exit 1")
				list := shell("ls -A $DTASK_CHECKPOINT_DIR | tr '\\n' ' '")
				for attempt := range uint32(3) {
					l.assign(t,
						work{task: 1, body: leave, attempt: attempt + 1},
						work{task: 2 + attempt, body: list}) // follows immediately
					for _, o := range l.outcomes(t, 2) {
						if again := strings.Contains(o.GetError(), "No such file"); o.GetAttempt().GetTask() == 1 && again != (attempt == 0) {
							t.Errorf("attempt %d ended with %q", attempt+1, o.GetError())
						}
						if o.GetAttempt().GetTask() != 1 && len(o.GetResult()) > 0 {
							t.Errorf("after attempt %d another task finds %q", attempt+1, o.GetResult())
						}
					}
					l.send(t, &dtaskv1.SessionResponse{Ack: &dtaskv1.Ack{Through: uint64(2 * (attempt + 1))}})
				}
			})
		})
	}
}

// The directory that a failed attempt left empty has the path that the task's next
// attempt uses, perhaps in another slot. Nobody may take it away from there.
func TestARetryKeepsItsCheckpointDirectoryWhateverOtherSlotsDo(t *testing.T) {
	t.Parallel()
	gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
	block := func(ctx context.Context, task *Task) ([]byte, error) {
		select {
		case <-gates[task.Payload[0]-'0']:
		case <-ctx.Done():
		}
		return nil, nil
	}
	withHandlers(t, Config{Slots: 2}, map[string]Handler{"block": block}, func(b *harness, l *leaderEnd) {
		t := b.t
		gate := filepath.Join(t.TempDir(), "gate")
		blocked := func(task uint32, gate string) work {
			return work{task: task, typ: "block", body: &dtaskv1.TaskBody{Payload: []byte(gate)}}
		}
		// One slot fails a short command, and then waits, like the other one. The
		// command before starts a supervisor, which takes longer.
		l.assign(t, blocked(2, "0"), work{task: 0, body: shell("true")}, work{task: 1, body: shell("exit 1")}, blocked(3, "1"))
		l.awaitOutcomes(t, 2)
		l.assign(t, work{task: 1, attempt: 2, body: shell("cd $DTASK_CHECKPOINT_DIR; echo x >saved; echo up; while [ ! -e " + gate + " ]; do sleep 0.01; done; cat $DTASK_CHECKPOINT_DIR/saved")})
		l.send(t, &dtaskv1.SessionResponse{LogRequest: &dtaskv1.LogRequest{Id: 1, Attempt: &dtaskv1.AttemptRef{Job: 7, Task: 1, Attempt: 2}, Follow: true, Stream: dtaskv1.LogStream_LOG_STREAM_STDOUT}})
		b.awaitAttempt(ref{job: 7, task: 1, attempt: 2})
		close(gates[0]) // the retry runs in the other slot
		l.next(t, "up", func(m *dtaskv1.SessionRequest) bool { return strings.Contains(logText(m.GetLogData()), "up") })
		l.assign(t, work{task: 4, body: shell("ls -A $DTASK_CHECKPOINT_DIR; touch " + gate)})
		b.awaitAttempt(ref{job: 7, task: 4, attempt: 1})
		close(gates[1]) // the next command runs in the first one
		l.awaitOutcomes(t, 6)
		for _, o := range l.seen {
			task, want := o.GetAttempt().GetTask(), ""
			if task == 1 && o.GetAttempt().GetAttempt() == 2 {
				want = "x"
			}
			if string(o.GetResult()) != want || o.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED != (task != 1 || want != "") {
				t.Errorf("outcome of task %d = %v, want result %q", task, o, want)
			}
		}
	})
}

func TestTwoProcessesCannotShareADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "jobs", "1", "left"), 0o700); err != nil {
		t.Fatal(err)
	}
	first, err := openDirs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "jobs", "1")); !os.IsNotExist(err) {
		t.Error("got leftovers of an earlier process")
	}
	if _, err := openDirs(dir); err == nil || !strings.Contains(err.Error(), "used by another process") {
		t.Errorf("second process: got %v", err)
	}
	if err := first.close(); err != nil {
		t.Error(err)
	}
	again, err := openDirs(dir)
	if err != nil {
		t.Fatalf("after the end of the first process: got %v", err)
	}
	if err := again.close(); err != nil {
		t.Error(err)
	}
}

func TestLogsOutliveTheProcessOfTheWorker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for life := range uint32(2) {
		withLeader(t, Config{Slots: 1, WorkDir: dir}, func(b *harness, l *leaderEnd) {
			t := b.t
			l.assign(t, work{task: life, body: shell("echo out; echo more")})
			l.outcome(t)
			for task := range life + 1 {
				if text, fault := readWholeLog(t, l, task, false); text != "out\nmore\n" || fault != "" {
					t.Errorf("life %d, task %d: got %q, %q", life, task, text, fault)
				}
			}
		})
	}
}
