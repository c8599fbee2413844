package chaos

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/chaos/check"
	"github.com/dtask/dtask/test/chaos/nemesis"
)

// proof is what a run exercised, as far as minimums exist for it.
type proof struct {
	calls       int      // successful ones
	unused      []string // links that were never dialed
	kinds       int      // of faults that fired
	leaderKills int
	tasks       int64 // acknowledged
	handovers   int   // of limits
	scheduled   check.Scheduled
}

// tooLittle lists the minimums that a run did not reach: a checker that finds
// nothing proves nothing unless there was something to find.
func tooLittle(o *options, p *proof) (missing []string) {
	below := func(is bool, format string, args ...any) {
		if is {
			missing = append(missing, fmt.Sprintf(format, args...))
		}
	}
	below(p.calls < o.MinCalls, "%d calls succeeded, want %d", p.calls, o.MinCalls)
	below(len(p.unused) > 0, "no connection used the links from %v: what they lose has no effect", p.unused)
	below(p.kinds < o.MinKinds, "%d kinds of faults fired, want %d", p.kinds, o.MinKinds)
	below(p.leaderKills < o.MinLeaderKills, "%d leaders were killed, want %d", p.leaderKills, o.MinLeaderKills)
	below(p.tasks < int64(o.MinTasks), "%d tasks were acknowledged, want %d", p.tasks, o.MinTasks)
	below(p.handovers < o.MinHandovers, "limits went from one task to another %d times, want %d", p.handovers, o.MinHandovers)
	below(p.scheduled.Rated < o.MinScheduled.Rated, "%d tasks started under limits with a rate, want %d", p.scheduled.Rated, o.MinScheduled.Rated)
	below(p.scheduled.Metered < o.MinScheduled.Metered, "%d tasks started in a queue with a quota on a resource, want %d", p.scheduled.Metered, o.MinScheduled.Metered)
	below(p.scheduled.Full < o.MinScheduled.Full, "%d tasks used up the quota of their queue, want %d", p.scheduled.Full, o.MinScheduled.Full)
	below(p.scheduled.Placed < o.MinScheduled.Placed, "%d tasks with required labels started, want %d", p.scheduled.Placed, o.MinScheduled.Placed)
	below(p.scheduled.GPUs < o.MinScheduled.GPUs, "%d tasks started with GPUs, want %d", p.scheduled.GPUs, o.MinScheduled.GPUs)
	below(p.scheduled.Preempted < o.MinScheduled.Preempted, "%d attempts ended for urgent tasks, want %d", p.scheduled.Preempted, o.MinScheduled.Preempted)
	return missing
}

func TestARunBelowAMinimumFails(t *testing.T) {
	t.Parallel()
	o := &options{MinCalls: 3000, MinKinds: 30, MinLeaderKills: 60, MinTasks: 10_000, MinHandovers: 10_000, MinScheduled: check.Scheduled{Rated: 100, Metered: 90, Full: 80, Placed: 70, GPUs: 65, Preempted: 60}}
	fine := proof{calls: 3000, kinds: 30, leaderKills: 60, tasks: 10_000, handovers: 10_000, scheduled: o.MinScheduled}
	if missing := tooLittle(o, &fine); len(missing) > 0 {
		t.Errorf("a run at its minimums: got missing %q, want none", missing)
	}
	for want, change := range map[string]func(*proof){
		"2999 calls succeeded":         func(p *proof) { p.calls = 2999 },
		"links from [n1 to n2]":        func(p *proof) { p.unused = []string{"n1 to n2"} },
		"29 kinds of faults":           func(p *proof) { p.kinds = 29 },
		"59 leaders were killed":       func(p *proof) { p.leaderKills = 59 },
		"one task to another 9999":     func(p *proof) { p.handovers = 9999 },
		"9999 tasks were acknowledged": func(p *proof) { p.tasks = 9999 },
		"99 tasks started under":       func(p *proof) { p.scheduled.Rated-- },
		"89 tasks started in a queue":  func(p *proof) { p.scheduled.Metered-- },
		"79 tasks used up":             func(p *proof) { p.scheduled.Full-- },
		"69 tasks with required":       func(p *proof) { p.scheduled.Placed-- },
		"64 tasks started with GPUs":   func(p *proof) { p.scheduled.GPUs-- },
		"59 attempts ended for urgent": func(p *proof) { p.scheduled.Preempted-- },
	} {
		p := fine
		change(&p)
		if missing := tooLittle(o, &p); len(missing) != 1 || !strings.Contains(missing[0], want) {
			t.Errorf("got missing %q, want one: %s", missing, want)
		}
	}
}

func TestFaultsThatTheRecordLacksAreDrawnMoreOften(t *testing.T) {
	t.Parallel()
	fired := make(map[string]int)
	for _, f := range nemesis.All() {
		fired[f.Kind()] = enough
	}
	if often := lacking(fired, nemesis.All()); len(often) > 0 {
		t.Errorf("a complete record: got kinds drawn more often %v, want none", often)
	}
	fired["F1"], fired["F7"], fired["F36"] = enough-1, enough-7, 0
	text := writeOften(lacking(fired, nemesis.All()))
	if want := "F1=2,F36=5,F7=3"; text != want {
		t.Errorf("got kinds drawn more often %s, want %s", text, want)
	}
	again, err := readOften(text)
	if err != nil || writeOften(again) != text {
		t.Errorf("decoded: got %v, %v", again, err)
	}
	for _, wrong := range []string{"F1", "F1=0", "F1=x"} {
		if _, err := readOften(wrong); err == nil {
			t.Errorf("%q: got no error", wrong)
		}
	}
}
