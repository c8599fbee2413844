package fsm

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// level4Log returns a log whose state has what level 4 added: how many tasks and jobs have ended,
// in each way.
func level4Log() []Entry {
	entries := [][]Op{
		{&SetClusterID{ID: "c0ffee"}, &SetLevel{Level: 3}, worker(1)},
		append(goldenJob(1, "before", false, goldenFirst), &CancelJob{Job: 1, Reason: "not counted"}),
		{&SetLevel{Level: 4}},
	}
	assign := func(job JobID, i, attempt uint32) *Assign {
		return &Assign{Items: []AssignItem{AssignItem(hold(job, i, attempt, 1))}}
	}
	completed := goldenJob(2, "completed", false, goldenFirst)
	for i := range uint32(3) {
		completed = append(completed, assign(2, i, 1), complete(hold(2, i, 1, 1)))
	}
	lost := goldenJob(5, "lost", false, goldenFirst)
	lost = append(lost, assign(5, 0, 1), complete(hold(5, 0, 1, 1)), assign(5, 1, 1), &RecordStart{Items: []HeldAttempt{hold(5, 1, 1, 1)}})
	entries = append(
		entries, completed,
		append(goldenJob(3, "failed", false, goldenFirst), assign(3, 0, 1), failed(hold(3, 0, 1, 1), NextFailed)),
		append(goldenJob(4, "dead", false, goldenFirst), assign(4, 0, 1), failed(hold(4, 0, 1, 1), NextDead), &Revive{Job: 4}, assign(4, 0, 2), failed(hold(4, 0, 2, 1), NextDead)),
		append(lost, &Lose{Items: []HeldAttempt{hold(5, 1, 1, 1)}}),
		append(goldenJob(6, "cancelled", false, goldenFirst), &CancelJob{Job: 6, Reason: "enough"}, &Archive{Items: []JobID{6}}),
	)
	log := make([]Entry, len(entries))
	for i, ops := range entries {
		log[i] = Entry{NowMS: int64(1000 * (i + 1)), Ops: ops}
	}
	return log
}

func TestReleasedSnapshotsOfLevel4AreReadForever(t *testing.T) {
	t.Parallel()
	readsReleasedSnapshot(t, "snapshot_v3_level4", "level4", level4Log(), func(s *State) []byte {
		var b []byte
		counted := countedEnds(s)
		for _, what := range slices.Sorted(maps.Keys(counted)) {
			b = fmt.Appendf(b, "%s: %d\n", what, counted[what])
		}
		return append(b, describeState(s)...)
	})
}
