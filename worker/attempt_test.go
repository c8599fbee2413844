package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const atMostOnce = dtaskv1.Execution_EXECUTION_AT_MOST_ONCE

func TestAStopCancelsAnAttemptInAnyPhase(t *testing.T) {
	t.Parallel()
	stubborn := func(ctx context.Context, _ *Task) ([]byte, error) {
		<-ctx.Done()
		return []byte("I finished anyway"), nil
	}
	inBubble(t, Config{Slots: 1}, map[string]Handler{"stubborn": stubborn}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t,
			work{task: 1, typ: "stubborn"}, // runs
			work{task: 2, typ: "stubborn"}, // waits for the slot
			work{task: 3, typ: "stubborn", policy: &dtaskv1.TaskPolicy{Execution: atMostOnce}}, // waits for its grant
		)
		synctest.Wait()
		l.send(t, &dtaskv1.SessionResponse{Stops: []*dtaskv1.Stop{
			{Attempt: attemptOf(9), Reason: dtaskv1.StopReason_STOP_REASON_CANCELLED}, // unknown
			{Attempt: attemptOf(3), Reason: dtaskv1.StopReason_STOP_REASON_CANCELLED},
			{Attempt: attemptOf(2), Reason: dtaskv1.StopReason_STOP_REASON_SUPERSEDED},
			{Attempt: attemptOf(1), Reason: dtaskv1.StopReason_STOP_REASON_CANCELLED},
		}})
		for number, o := range l.outcomes(t, 3) {
			if o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED || len(o.GetResult()) > 0 {
				t.Errorf("outcome %d: got %v, want cancelled without a result", number, o)
			}
		}
		if !b.logs.has("msg=\"attempt superseded\"") || !b.logs.has("job_id=7 task_index=2 attempt=1") {
			t.Error("missing log message for the superseded attempt")
		}
	})
}

// A steal request releases an attempt that has not started, which then never
// starts here. Attempts that run, that wait for a grant, or that are unknown
// are not affected.
func TestAStolenAttemptNeverStarts(t *testing.T) {
	t.Parallel()
	var begun atomic.Int32
	inBubble(t, Config{Slots: 1}, map[string]Handler{"wait": func(ctx context.Context, _ *Task) ([]byte, error) {
		begun.Add(1)
		select {
		case <-time.After(5 * time.Second):
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t,
			work{task: 1, typ: "wait"},
			work{task: 2, typ: "wait"},
			work{task: 3, typ: "wait"},
			work{task: 4, typ: "wait", policy: &dtaskv1.TaskPolicy{Execution: atMostOnce}},
		)
		synctest.Wait()
		l.send(t, &dtaskv1.SessionResponse{StealRequests: []*dtaskv1.AttemptRef{attemptOf(9), attemptOf(4), attemptOf(3), attemptOf(2), attemptOf(1)}})
		want := map[uint32]dtaskv1.OutcomeKind{
			3: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, 2: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, 1: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED,
		}
		for _, o := range l.outcomes(t, 3) {
			if kind := want[o.GetAttempt().GetTask()]; o.GetKind() != kind {
				t.Errorf("task %d: %v, want %v", o.GetAttempt().GetTask(), o, kind)
			}
		}
		synctest.Wait()
		if got := begun.Load(); got != 1 {
			t.Errorf("got %d started attempts, want 1", got)
		}
	})
}

func TestAStopByTheCoordinatorsClockIsATimeout(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{Slots: 1}, map[string]Handler{"block": blocks}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 1, typ: "block"})
		synctest.Wait()
		l.send(t, &dtaskv1.SessionResponse{Stops: []*dtaskv1.Stop{{Attempt: attemptOf(1), Reason: dtaskv1.StopReason_STOP_REASON_TIMED_OUT}}})
		if o := l.outcome(t); o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_TIMED_OUT {
			t.Errorf("outcome = %v", o)
		}
	})
}

// The handler learns why its context ended; the one that waits for the slot never starts.
func TestAStopForAnUrgentTaskReleasesTheAttempt(t *testing.T) {
	t.Parallel()
	causes := make(chan error, 1)
	waits := func(ctx context.Context, _ *Task) ([]byte, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return []byte("too late"), nil
	}
	inBubble(t, Config{Slots: 1}, map[string]Handler{"waits": waits}, func(b *harness, l *leaderEnd) {
		t := b.t
		preemptible := &dtaskv1.TaskPolicy{Preemptible: true, TimeoutMs: 600_000}
		l.assign(t, work{task: 1, typ: "waits", policy: preemptible}, work{task: 2, typ: "waits", policy: preemptible})
		synctest.Wait()
		l.send(t, &dtaskv1.SessionResponse{Stops: []*dtaskv1.Stop{
			{Attempt: attemptOf(2), Reason: dtaskv1.StopReason_STOP_REASON_PREEMPTED},
			{Attempt: attemptOf(1), Reason: dtaskv1.StopReason_STOP_REASON_PREEMPTED},
		}})
		for number, o := range l.outcomes(t, 2) {
			if o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED || o.GetError() != "an urgent task takes its place" || len(o.GetResult()) > 0 {
				t.Errorf("outcome %d: got %v, want released for an urgent task", number, o)
			}
		}
		if cause := <-causes; !errors.Is(cause, ErrPreempted) {
			t.Errorf("got cause %v, want ErrPreempted", cause)
		}
	})
}

func TestTimeoutsAreExact(t *testing.T) {
	t.Parallel()
	reports := func(ctx context.Context, t *Task) ([]byte, error) {
		for i := range 10 { // then it is silent
			select {
			case <-time.After(2 * time.Second):
				t.Progress(float64(i)/10, "step")
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	inBubble(t, Config{Slots: 2}, map[string]Handler{"block": blocks, "reports": reports}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t,
			work{task: 1, typ: "block", policy: &dtaskv1.TaskPolicy{TimeoutMs: 1500}},
			work{task: 2, typ: "reports", policy: &dtaskv1.TaskPolicy{TimeoutMs: 3_600_000, HeartbeatTimeoutMs: 3000}},
		)
		got := l.outcomes(t, 2)
		for number, want := range map[uint64]struct {
			text string
			ms   uint32
		}{1: {"timed out: ran for 1.5s", 1500}, 2: {"timed out: no progress report for 3s", 23_000}} {
			o := got[number]
			if o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_TIMED_OUT || o.GetError() != want.text || o.tookMS != want.ms {
				t.Errorf("outcome %d: got %v, want %q after %d ms", number, o, want.text, want.ms)
			}
		}
	})
}

func TestAnAtMostOnceAttemptStartsOnlyWhenGranted(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	inBubble(t, Config{Slots: 1}, map[string]Handler{"once": func(context.Context, *Task) ([]byte, error) {
		begun <- struct{}{}
		return nil, nil
	}}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 1, typ: "once", policy: &dtaskv1.TaskPolicy{Execution: atMostOnce}})
		for range 3 { // requested immediately, and again with each heartbeat
			l.next(t, "a start request", func(m *dtaskv1.SessionRequest) bool {
				return len(m.GetReports().GetStartRequests()) == 1 && m.GetReports().GetStartRequests()[0].GetTask() == 1
			})
		}
		select {
		case <-begun:
			t.Fatal("the attempt started without a grant")
		default:
		}
		l.send(t, &dtaskv1.SessionResponse{StartGrants: []*dtaskv1.AttemptRef{attemptOf(1)}})
		if o := l.outcome(t); o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED {
			t.Errorf("outcome = %v", o)
		}
		l.send(t, &dtaskv1.SessionResponse{StartGrants: []*dtaskv1.AttemptRef{attemptOf(1)}}) // repeated: no effect
		synctest.Wait()
		if len(begun) != 1 {
			t.Errorf("got %d starts, want 1", len(begun))
		}
	})
}

func TestAnAtMostOnceAttemptEndsWithItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		b := start(t, n, Config{Slots: 2, DrainTimeout: -1}, map[string]Handler{"block": blocks})
		defer b.finish()
		l := (<-r.sessions).welcome(t, 1)
		l.assign(t, work{task: 1, typ: "block", policy: &dtaskv1.TaskPolicy{Execution: atMostOnce}}, work{task: 2, typ: "block"})
		l.next(t, "a start request", func(m *dtaskv1.SessionRequest) bool { return len(m.GetReports().GetStartRequests()) == 1 })
		granted := time.Now()
		l.send(t, &dtaskv1.SessionResponse{StartGrants: []*dtaskv1.AttemptRef{attemptOf(1)}})
		for range 60 { // renewed for a minute, twice its length
			l.next(t, "a heartbeat", func(m *dtaskv1.SessionRequest) bool { return m.GetHeartbeat() != 0 })
		}
		synctest.Wait()    // the answer arrived
		last := time.Now() // the last answered heartbeat was sent now
		n.stop("n1:1")
		<-time.After(29 * time.Second)
		if got := b.worker.Stats().Running; got != 2 {
			t.Errorf("got %d running attempts 29 s after the last heartbeat, want 2", got)
		}
		<-time.After(time.Minute)
		r = n.listen("n1:1", nil)
		l = (<-r.sessions).welcome(t, 2)
		o := l.outcome(t)
		if o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED || o.GetError() != "lease ended" || !o.GetFatal() || o.GetAttempt().GetTask() != 1 {
			t.Errorf("got outcome %v, want a fatal failure of task 1 because its lease ended", o)
		}
		if after := granted.Add(time.Duration(o.tookMS) * time.Millisecond).Sub(last); after < 29*time.Second || after > 30*time.Second {
			t.Errorf("got the end %v after the last answered heartbeat, want just under 30 s", after)
		}
		if got := b.worker.Stats().Running; got != 1 {
			t.Errorf("got %d running attempts, want the at-least-once one", got)
		}
	})
}

func TestAnAttemptThatCountsTowardsALimitEndsWithItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		b := start(t, n, Config{Slots: 2, DrainTimeout: -1}, map[string]Handler{"block": blocks})
		defer b.finish()
		l := (<-r.sessions).welcome(t, 1)
		l.next(t, "a heartbeat", func(m *dtaskv1.SessionRequest) bool { return m.GetHeartbeat() != 0 })
		l.assign(t, work{task: 1, typ: "block", policy: &dtaskv1.TaskPolicy{Uses: []string{"db"}}}, work{task: 2, typ: "block"})
		for range 60 { // renewed for a minute, twice its length
			l.next(t, "a heartbeat", func(m *dtaskv1.SessionRequest) bool { return m.GetHeartbeat() != 0 })
		}
		synctest.Wait() // the answer arrived
		n.stop("n1:1")
		<-time.After(29 * time.Second)
		if got := b.worker.Stats().Running; got != 2 {
			t.Errorf("got %d running attempts 29 s after the last heartbeat, want 2", got)
		}
		<-time.After(time.Second + time.Millisecond)
		synctest.Wait() // the attempt has ended
		if got := b.worker.Stats().Running; got != 1 {
			t.Errorf("got %d running attempts after the lease, want the one without a limit", got)
		}
		r = n.listen("n1:1", nil)
		l = (<-r.sessions).welcome(t, 2)
		if o := l.outcome(t); o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED || o.GetAttempt().GetTask() != 1 {
			t.Errorf("got outcome %v, want that task 1 is released", o)
		}
	})
}

func TestOnlyLongAttemptsAreReportedAsStarted(t *testing.T) {
	t.Parallel()
	naps := func(ctx context.Context, t *Task) ([]byte, error) {
		d, err := time.ParseDuration(string(t.Payload))
		if err != nil {
			return nil, err
		}
		select {
		case <-time.After(d):
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	inBubble(t, Config{Slots: 3}, map[string]Handler{"nap": naps}, func(b *harness, l *leaderEnd) {
		t := b.t
		begun := time.Now()
		for i, d := range []string{"99ms", "101ms", "1h"} {
			l.assign(t, work{task: uint32(i), typ: "nap", body: &dtaskv1.TaskBody{Payload: []byte(d)}, policy: &dtaskv1.TaskPolicy{TimeoutMs: 7_200_000}})
		}
		var told []uint32
		for time.Since(begun) < 10*time.Second {
			m := l.next(t, "anything", func(*dtaskv1.SessionRequest) bool { return true })
			for _, b := range m.GetReports().GetStarted() {
				told = append(told, b.GetAttempt().GetTask())
				if ran := time.Since(begun).Milliseconds(); int64(b.GetRanMs()) != ran {
					t.Errorf("got started %d ms ago, want %d", b.GetRanMs(), ran)
				}
			}
		}
		if len(told) != 2 || told[0] != 1 || told[1] != 2 {
			t.Errorf("got started reports of %v, want one of 1 and 2", told)
		}
	})
}

// The report of a start tells the age that it has when it is sent: a coordinator may take a second
// to open a session.
func TestAnAttemptKeepsItsStartIfASessionOpensLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		r := n.listen("n1:1", nil)
		b := start(t, n, Config{Slots: 1, DrainTimeout: -1}, map[string]Handler{"wait": func(ctx context.Context, _ *Task) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		defer b.finish()
		l := (<-r.sessions).welcome(t, 1)
		begun := time.Now()
		l.assign(t, work{task: 1, typ: "wait"})
		started := func(m *dtaskv1.SessionRequest) bool { return len(m.GetReports().GetStarted()) > 0 }
		l.next(t, "the start", started)
		n.stop("n1:1")
		r = n.listen("n1:1", nil)
		l = <-r.sessions
		<-time.After(time.Second)
		again := l.welcome(t, 2).next(t, "the start again", started).GetReports().GetStarted()[0]
		if ran := time.Since(begun).Milliseconds(); int64(again.GetRanMs()) != ran {
			t.Errorf("got started %d ms ago, want %d", again.GetRanMs(), ran)
		}
	})
}

func TestOnlyTheLatestProgressIsSent(t *testing.T) {
	t.Parallel()
	chatty := func(ctx context.Context, t *Task) ([]byte, error) {
		for i := range 10_000 {
			t.Progress(float64(i)/9_999, strings.Repeat("é", 200))
		}
		<-ctx.Done()
		return nil, nil
	}
	inBubble(t, Config{Slots: 1}, map[string]Handler{"chatty": chatty}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 1, typ: "chatty"})
		m := l.next(t, "progress", func(m *dtaskv1.SessionRequest) bool { return len(m.GetReports().GetProgress()) > 0 })
		p := m.GetReports().GetProgress()
		if len(p) != 1 || p[0].GetPermille() != 1000 || len(p[0].GetText()) > 256 || !strings.HasPrefix(p[0].GetText(), "éé") {
			t.Errorf("progress = %v", p)
		}
	})
}

func TestFailuresOfHandlersAreClassified(t *testing.T) {
	t.Parallel()
	plain := errors.New("no\xffluck")
	cases := map[string]struct {
		h    Handler
		want *dtaskv1.Outcome
	}{
		"plain":     {func(context.Context, *Task) ([]byte, error) { return nil, plain }, &dtaskv1.Outcome{Error: "no?luck"}},
		"fatal":     {func(context.Context, *Task) ([]byte, error) { return nil, Fatal(plain) }, &dtaskv1.Outcome{Error: "no?luck", Fatal: true}},
		"retryable": {func(context.Context, *Task) ([]byte, error) { return nil, Retryable(plain) }, &dtaskv1.Outcome{Error: "no?luck", Temporary: true}},
		"named": {
			func(context.Context, *Task) ([]byte, error) { return nil, Named("Quota", Fatal(plain)) },
			&dtaskv1.Outcome{Error: "no?luck", ErrorName: "Quota", Fatal: true},
		},
		"exit":  {func(context.Context, *Task) ([]byte, error) { return nil, Exit(3, plain) }, &dtaskv1.Outcome{Error: "no?luck", ExitCode: 3}},
		"panic": {func(context.Context, *Task) ([]byte, error) { panic("oh no") }, &dtaskv1.Outcome{Error: "panic: oh no"}},
		"huge": {
			func(context.Context, *Task) ([]byte, error) { return make([]byte, 5000), nil },
			&dtaskv1.Outcome{Error: "result too large: 5000 bytes exceed 4096: write it to an output", Fatal: true},
		},
		"long": {
			func(context.Context, *Task) ([]byte, error) { return nil, errors.New(strings.Repeat("ä", 2000)) },
			&dtaskv1.Outcome{Error: strings.Repeat("ä", 512)},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, Config{Slots: 1}, map[string]Handler{"h": c.h}, func(b *harness, l *leaderEnd) {
				t := b.t
				l.assign(t, work{task: 1, typ: "h"})
				o := l.outcome(t)
				if name == "long" && len(o.GetError()) >= len(c.want.GetError())-2 {
					o.Error = c.want.GetError() // the last rune may be removed completely
				}
				if name == "panic" {
					first, calls, _ := strings.Cut(o.GetError(), "\n")
					if !strings.HasPrefix(calls, "worker.") || !strings.Contains(calls, " attempt_test.go:") || strings.Contains(calls, "runtime") {
						t.Errorf("got calls %q of a panic", calls)
					}
					o.Error = first
				}
				if o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED || o.GetError() != c.want.GetError() || o.GetFatal() != c.want.GetFatal() ||
					o.GetTemporary() != c.want.GetTemporary() || o.GetErrorName() != c.want.GetErrorName() || o.GetExitCode() != c.want.GetExitCode() {
					t.Errorf("outcome = %v, want %v", o, c.want)
				}
				if name != "panic" {
					return
				}
				text, _ := readWholeLog(t, l, 1, false)
				if !strings.Contains(text, "panic: oh no") || !strings.Contains(text, "attempt_test.go") {
					t.Errorf("got log %q of a panic, want its stack", text)
				}
				l.assign(t, work{task: 2, typ: "h"}) // the worker continues
				l.outcome(t)
			})
		})
	}
}

func TestAnUnknownTypeIsNotStarted(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{Slots: 1}, nil, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 1, typ: "nothing"}, work{task: 2, typ: "", body: &dtaskv1.TaskBody{}},
			work{task: 3, typ: "nothing", body: &dtaskv1.TaskBody{Inputs: []string{"s3://bucket/key"}}})
		got := l.outcomes(t, 3)
		for number, want := range map[uint64]struct {
			text  string
			fatal bool
		}{1: {`no handler for task type "nothing"`, false}, 2: {"no command", true}, 3: {"only files are supported", true}} {
			if o := got[number]; o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED || !strings.Contains(o.GetError(), want.text) || o.GetFatal() != want.fatal {
				t.Errorf("outcome %d: got %v, want %q", number, o, want.text)
			}
		}
	})
}

func TestAnOutputIsPublishedCompletelyOrNotAtAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	final := filepath.Join(dir, "new", "dir", "out.json")
	aside := final + ".7-1-1.tmp"
	writes := func(_ context.Context, t *Task) ([]byte, error) {
		if err := os.WriteFile(t.Output, []byte("hello"), 0o600); err != nil {
			return nil, err
		}
		if _, err := os.Stat(final); err == nil {
			return nil, errors.New("the output exists before the end")
		}
		if t.Output != aside {
			return nil, errors.New("aside: " + t.Output)
		}
		return nil, nil
	}
	slow := func(ctx context.Context, t *Task) ([]byte, error) {
		_ = os.WriteFile(t.Output, []byte("never visible"), 0o600)
		<-ctx.Done()
		return nil, nil
	}
	handlers := map[string]Handler{"writes": writes, "slow": slow, "lazy": returns, "fails": func(_ context.Context, t *Task) ([]byte, error) {
		_ = os.WriteFile(t.Output, []byte("half"), 0o600)
		return nil, errors.New("no")
	}}
	inBubble(t, Config{Slots: 1}, handlers, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 1, typ: "writes", body: &dtaskv1.TaskBody{Output: "file://" + final}})
		o := l.outcome(t)
		if o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED || o.GetOutputSize() != 5 || len(o.GetOutputSha256()) != 32 {
			t.Errorf("outcome = %v", o)
		}
		if data, err := os.ReadFile(final); err != nil || string(data) != "hello" {
			t.Errorf("output = %q, %v", data, err)
		}
		l.assign(t,
			work{task: 2, typ: "slow", body: &dtaskv1.TaskBody{Output: filepath.Join(dir, "slow")}},
			work{task: 3, typ: "fails", body: &dtaskv1.TaskBody{Output: filepath.Join(dir, "fails")}},
			work{task: 4, typ: "lazy", body: &dtaskv1.TaskBody{Output: filepath.Join(dir, "lazy")}},
		)
		synctest.Wait()
		l.send(t, &dtaskv1.SessionResponse{Stops: []*dtaskv1.Stop{{Attempt: attemptOf(2), Reason: dtaskv1.StopReason_STOP_REASON_SUPERSEDED}}})
		got := l.outcomes(t, 3)
		if got[2].GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED || got[3].GetError() != "no" || !strings.Contains(got[4].GetError(), "missing output") {
			t.Errorf("outcomes = %v", got)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
			t.Errorf("got leftover files %v", left)
		}
	})
}

func TestASupersededOutcomeIsLoggedAndRemoved(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{Slots: 1}, map[string]Handler{"ok": returns}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 3, typ: "ok"})
		l.outcome(t)
		l.send(t, &dtaskv1.SessionResponse{Ack: &dtaskv1.Ack{Through: 1, Exceptions: []*dtaskv1.ReportVerdict{
			{Number: 1, Verdict: dtaskv1.Verdict_VERDICT_SUPERSEDED, Attempt: attemptOf(3)},
		}}})
		synctest.Wait()
		if !b.logs.has("msg=\"attempt superseded\"") || !b.logs.has("job_id=7 task_index=3 attempt=1") || b.worker.Stats().Unsettled != 0 {
			t.Errorf("want the superseded outcome logged and removed: got %+v", b.worker.Stats())
		}
	})
}

func TestAnAssignmentReceivedTwiceRunsOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{Slots: 1}, map[string]Handler{"ok": returns}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 1, typ: "ok"})
		l.assign(t, work{task: 1, typ: "ok"})
		l.outcome(t)
		l.assign(t, work{task: 1, typ: "ok"}) // ended, not yet acknowledged
		synctest.Wait()
		if got := b.worker.Stats(); got.Received != 1 || got.Succeeded != 1 || got.Unsettled != 1 {
			t.Errorf("stats = %+v", got)
		}
	})
}

func logText(d *dtaskv1.LogData) (text string) {
	for _, p := range d.GetPieces() {
		text += string(p.GetData())
	}
	return text
}

// readWholeLog requests a log, and returns its text and error.
func readWholeLog(t *testing.T, l *leaderEnd, task uint32, follow bool) (text, fault string) {
	t.Helper()
	l.send(t, &dtaskv1.SessionResponse{LogRequest: &dtaskv1.LogRequest{Id: uint64(task) + 100, Attempt: attemptOf(task), Follow: follow}})
	for {
		d := l.next(t, "log data", func(m *dtaskv1.SessionRequest) bool { return m.GetLogData() != nil }).GetLogData()
		if data := logText(d); d.GetId() != uint64(task)+100 || len(data) > maxLogChunk {
			t.Fatalf("got log data of id %d with %d bytes", d.GetId(), len(data))
		}
		text += logText(d)
		if d.GetEnd() {
			return text, d.GetError()
		}
	}
}
