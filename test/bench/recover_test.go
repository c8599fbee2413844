package main

import (
	"strings"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestTheLedgerOfALostMajorityFindsWhatMustNotBe(t *testing.T) {
	t.Parallel()
	const (
		done = dtaskv1.TaskState_TASK_STATE_COMPLETED
		lost = dtaskv1.TaskState_TASK_STATE_LOST
	)
	for name, c := range map[string]struct {
		index, attempt uint32
		state          dtaskv1.TaskState
		starts         int
		kept           *completion
		says           string // empty: nothing
	}{
		"an ordinary task ran again":         {index: 0, attempt: 2, state: done, starts: 2},
		"a completion was kept":              {index: 0, attempt: 1, state: done, starts: 1, kept: &completion{1, 1}},
		"an at-most-once task was lost":      {index: 1, attempt: 1, state: lost, starts: 1},
		"an at-most-once task never started": {index: 1, state: lost},
		"an at-most-once task ran again":     {index: 1, attempt: 2, state: done, starts: 2, says: "started 2 times"},
		"it ran again and is lost":           {index: 1, attempt: 1, state: lost, starts: 2, says: "started 2 times"},
		"its completion was lost":            {index: 1, attempt: 1, state: lost, starts: 1, kept: &completion{1, 1}, says: "is missing"},
		"an ordinary task was lost":          {index: 0, attempt: 1, state: lost, starts: 1, says: "is missing"},
		"a task completed without a start":   {index: 0, attempt: 1, state: done, says: "is missing"},
		"a kept task ran again":              {index: 0, attempt: 1, state: done, starts: 2, kept: &completion{1, 1}, says: "completed twice"},
		"a kept task has another attempt":    {index: 0, attempt: 2, state: done, starts: 1, kept: &completion{1, 1}, says: "completed twice"},
	} {
		l := newRecoveryLedger(2)
		for range c.starts {
			l.begins.note(c.index)
		}
		if c.kept != nil {
			l.kept[c.index] = *c.kept
		}
		err := l.checkTask(&dtaskv1.Task{Index: c.index, Attempt: c.attempt, State: c.state})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}
