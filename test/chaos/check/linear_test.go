package check

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/test/chaos/history"
	"github.com/dtask/dtask/test/cluster/ledger"
)

func TestEachPlantedHistoryIsNotLinearizable(t *testing.T) {
	t.Parallel()
	const job, task, key = "job 7", "task 7/a", "key k"
	cases := map[string]struct {
		where string
		spoil func(*Record)
	}{
		"a read after the acknowledgment does not find the job": {job, func(r *Record) {
			r.Calls[1].Verdict, r.Calls[1].Reason = history.Fail, history.NotFound
		}},
		"a read after a cancel was acknowledged shows it running": {job, func(r *Record) {
			r.Calls[1].Call, r.Calls[1].Return = 47, 48
			r.Calls = append(r.Calls[:2], history.Call{Kind: history.Cancel, Job: "7", Call: 44, Return: 46, Verdict: history.OK})
		}},
		"a job completes after it was cancelled": {job, func(r *Record) {
			r.Calls = append(r.Calls, history.Call{Kind: history.Cancel, Job: "7", Call: 44, Return: 46, Verdict: history.OK})
		}},
		"a cancel succeeds after the end was seen": {job, func(r *Record) {
			r.Calls = append(r.Calls, history.Call{Kind: history.Cancel, Job: "7", Call: 98, Return: 99, Verdict: history.OK})
		}},
		"a cancel is too late but the job continues": {job, func(r *Record) {
			r.Calls = append(r.Calls, history.Call{Kind: history.Cancel, Job: "7", Call: 12, Return: 15, Verdict: history.Fail, Reason: history.Conflict})
			r.Calls[0].Return = 13
		}},
		"a job that ended is shown running": {job, func(r *Record) {
			r.Calls = append(r.Calls, history.Call{Kind: history.Read, Job: "7", Call: 98, Return: 99, Verdict: history.OK, State: "running", Count: 2})
		}},
		"the count of completed tasks decreases": {job, func(r *Record) {
			r.Calls[1].Count = 1
			again := r.Calls[1]
			again.Call, again.Return, again.Count = 30, 31, 0
			r.Calls = append(r.Calls, again)
		}},
		"a job fails after it had completed": {job, func(r *Record) {
			r.Calls = append(r.Calls, history.Call{Kind: history.Read, Job: "7", Call: 98, Return: 99, Verdict: history.OK, State: "failed", Count: 2})
		}},
		"a task is completed before its attempt ended": {task, func(r *Record) { r.Calls[2].Call, r.Calls[2].Return = 35, 36 }},
		"an attempt begins before it is assigned": {task, func(r *Record) {
			r.Calls[2].Call, r.Calls[2].Return, r.Calls[2].State, r.Calls[2].Attempt = 35, 36, "assigned", 0
		}},
		"one key names two jobs": {key, func(r *Record) {
			c := r.Calls[0]
			c.Job, c.Call, c.Return, c.Already = "8", 21, 22, true
			r.Calls = append(r.Calls, c)
		}},
		"a repeat is reported as the first": {key, func(r *Record) {
			c := r.Calls[0]
			c.Call, c.Return = 21, 22
			r.Calls = append(r.Calls, c)
		}},
		"another job is accepted under a used key": {key, func(r *Record) {
			c := r.Calls[0]
			c.Body, c.Call, c.Return, c.Already = "y", 21, 22, true
			r.Calls = append(r.Calls, c)
		}},
		"the same job is a conflict": {key, func(r *Record) {
			c := r.Calls[0]
			c.Verdict, c.Reason, c.Job, c.Call, c.Return = history.Fail, history.Conflict, "", 21, 22
			r.Calls = append(r.Calls, c)
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := story()
			c.spoil(&r)
			for _, f := range Linear(r, t.TempDir()) {
				if f.Kind == Illegal && f.Where == c.where {
					return
				}
			}
			t.Errorf("got no illegal order at %s", c.where)
		})
	}
}

// The search takes twenty times as long as it may, on a clock that waits for everyone: on the
// clock of the machine, a test that stands still could find a result and the timeout at once.
func TestAnUnfinishedSearchIsAFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := story()
		var faults list
		a := newAccount(r)
		jobs, _, _ := partition(a)
		model := things()
		model.Step = func(now, _, _ any) (bool, any) {
			<-time.After(200 * time.Millisecond)
			return true, now
		}
		judge(&faults, model, "job", jobs, "", 10*time.Millisecond)
		if Count(faults, Undecided) != 1 {
			t.Errorf("got faults %v, want one that is undecided", faults)
		}
	})
}

func TestTheLedgerConstrainsTheOrder(t *testing.T) {
	t.Parallel()
	r := story()
	r.Lines = append(r.Lines, ledger.Line{Kind: ledger.Start, Job: "7", Task: "a", Attempt: 2, Token: 2, Worker: "w2", Pid: 9, At: 41})
	if faults := Linear(r, ""); Count(faults, Illegal) != 1 {
		t.Errorf("attempt 2 started at 41 and a read at 42 shows attempt 1: got faults %v, want one illegal order", faults)
	}
}
