package fsm

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestANameCoversTheTasksThatExecuteItsItems(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := &Array{Name: "run", Chunk: rapid.Uint32Range(1, 5).Draw(t, "chunk")}
		if rapid.Bool().Draw(t, "items") {
			a.Items = rapid.Uint32Range(1, 20).Draw(t, "n")
		} else {
			next := uint32(0)
			for range rapid.IntRange(1, 3).Draw(t, "ranges") {
				r := IndexRange{First: next + rapid.Uint32Range(0, 9).Draw(t, "gap"), Step: rapid.Uint32Range(1, 4).Draw(t, "step"), Count: rapid.Uint32Range(1, 9).Draw(t, "count")}
				a.Ranges, a.Items, next = append(a.Ranges, r), a.Items+r.Count, uint32(r.last())+1
			}
		}
		lo := rapid.Uint32Range(0, 60).Draw(t, "lo")
		hi := lo + rapid.Uint32Range(0, 30).Draw(t, "wide")
		name := fmt.Sprintf("run[%d-%d]", lo, hi)
		if lo == hi && rapid.Bool().Draw(t, "single") {
			name = fmt.Sprintf("run[%d]", lo)
		}
		k, end, ok := a.Covering(name)
		if !ok {
			t.Fatalf("%s: got no task", name)
		}
		for task := range a.Tasks() {
			first, behind := a.of(task)
			want := false
			for i := first; i < behind; i++ {
				want = want || a.Index(i) >= lo && a.Index(i) <= hi
			}
			// Between two covered tasks no task has all its items in a gap: each
			// task has items, and they ascend.
			if got := task >= k && task < end; got != want {
				t.Fatalf("%s of %+v: task %d: got %v, want %v (%d to %d)", name, a, task, got, want, k, end)
			}
		}
	})
	a := &Array{Name: "run", Items: 9, Chunk: 2}
	for _, name := range []string{"run", "run[", "run[]", "run[1", "run[a]", "run[2-1]", "runs[1]", "run[1-]", "run[-1]", "run[1-2-3]"} {
		if _, _, ok := a.Covering(name); ok {
			t.Errorf("%s: got a task, want none", name)
		}
	}
}
