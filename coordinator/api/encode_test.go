package api

import (
	"fmt"
	"runtime"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Not parallel: it counts what the whole process allocates.
func TestSmallJobIsEncodedWithLittleMemory(t *testing.T) { //nolint:paralleltest // see above
	const (
		jobs = 200
		most = 8 << 10 // bytes for each; a chunk that is full has 64 KiB
	)
	m := &dtaskv1.JobPart{IdempotencyKey: "k", Total: 10, Header: &dtaskv1.JobHeader{Name: "j"}}
	for i := range m.GetTotal() {
		m.Tasks = append(m.Tasks, &dtaskv1.TaskSpec{Id: fmt.Sprint(i), Body: &dtaskv1.TaskBody{Payload: make([]byte, 32)}})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range jobs {
		var e jobEncoder
		if err := e.begin(m); err != nil {
			t.Fatal(err)
		}
		for _, task := range m.GetTasks() {
			if err := e.add(task); err != nil {
				t.Fatal(err)
			}
		}
		if s := e.finish(); len(s.Chunks) != 1 || s.Chunks[0].Len() != 10 {
			t.Fatalf("got %d chunks, want 1", len(s.Chunks))
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / jobs; each > most {
		t.Errorf("got %d bytes allocated for a job of 10 tasks, want at most %d", each, most)
	}
}
