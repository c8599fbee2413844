package worker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// withGPUs is the policy of a task that requests GPUs, in thousandths.
func withGPUs(amount int64) *dtaskv1.TaskPolicy {
	return &dtaskv1.TaskPolicy{TimeoutMs: 3_600_000, Resources: map[string]int64{"gpu": amount}}
}

func TestAHandlerReadsItsGPUsAndReturnsThem(t *testing.T) {
	t.Parallel()
	handlers := map[string]Handler{"gpus": func(_ context.Context, t *Task) ([]byte, error) {
		return []byte(strings.Join(t.GPUs, " ")), nil
	}}
	inBubble(t, Config{Slots: 1, GPUs: "amd:3,5"}, handlers, func(_ *harness, l *leaderEnd) {
		for task, test := range []struct {
			policy *dtaskv1.TaskPolicy
			want   string
		}{{withGPUs(2000), "3 5"}, {withGPUs(1000), "3"}, {withGPUs(500), "3"}, {nil, ""}, {withGPUs(1500), "3 5"}} {
			l.assign(t, work{task: uint32(task), typ: "gpus", policy: test.policy})
			if got := l.outcome(t); string(got.GetResult()) != test.want {
				t.Errorf("task %d has the GPUs %q, want %q", task, got.GetResult(), test.want)
			}
		}
	})
}

// A slot executes one attempt after another.
func TestTheNextAttemptOfASlotDoesNotGetTheGPUsOfTheLastOne(t *testing.T) {
	t.Parallel()
	handlers := map[string]Handler{"gpus": func(_ context.Context, t *Task) ([]byte, error) {
		return []byte(strings.Join(t.GPUs, " ")), nil
	}}
	inBubble(t, Config{Slots: 1, GPUs: "0"}, handlers, func(_ *harness, l *leaderEnd) {
		l.assign(t, work{task: 1, typ: "gpus", policy: withGPUs(1000)}, work{task: 2, typ: "gpus"})
		got := l.outcomes(t, 2)
		for number, want := range map[uint64]string{1: "0", 2: ""} {
			if gpus := got[number]; string(gpus.GetResult()) != want {
				t.Errorf("attempt %d got the GPUs %q, want %q", number, gpus.GetResult(), want)
			}
		}
	})
}

// The leader can assign it, because a stopped attempt may end late.
func TestAnAttemptThatWaitsForAGPUSaysWhyAndCanBeStopped(t *testing.T) {
	t.Parallel()
	inBubble(t, Config{Slots: 2, GPUs: "0"}, map[string]Handler{"blocks": blocks}, func(b *harness, l *leaderEnd) {
		l.assign(t, work{task: 1, typ: "blocks", policy: withGPUs(1000)})
		b.awaitAttempt(ref{job: 7, task: 1, attempt: 1})
		synctest.Wait()
		l.assign(t, work{task: 2, typ: "blocks", policy: withGPUs(1000)})
		l.next(t, "why task 2 waits", func(m *dtaskv1.SessionRequest) bool {
			for _, p := range m.GetReports().GetProgress() {
				if p.GetText() == "waits for a GPU of this worker" {
					return true
				}
			}
			return false
		})
		l.send(t, &dtaskv1.SessionResponse{Stops: []*dtaskv1.Stop{{Attempt: attemptOf(2), Reason: dtaskv1.StopReason_STOP_REASON_CANCELLED}}})
		if got := l.outcome(t); got.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED {
			t.Errorf("got %v", got)
		}
		if running, _ := b.worker.attempts.counts(); running != 1 {
			t.Errorf("%d attempts run, want the one that has the GPU", running)
		}
	})
}

func TestAWorkerWithANumberOfGPUsChoosesNone(t *testing.T) {
	t.Parallel()
	handlers := map[string]Handler{"gpus": func(_ context.Context, t *Task) ([]byte, error) {
		return []byte(strings.Join(t.GPUs, " ")), nil
	}}
	inBubble(t, Config{Slots: 1, Resources: map[string]int64{"gpu": 4000}}, handlers, func(_ *harness, l *leaderEnd) {
		l.assign(t, work{task: 1, typ: "gpus", policy: withGPUs(3000)})
		if got := l.outcome(t); len(got.GetResult()) > 0 || got.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED {
			t.Errorf("got %v", got)
		}
	})
}
