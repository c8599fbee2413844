package document

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// tasksThen yields tasks and then an error, unless it is nil.
func tasksThen(tasks []*dtaskv1.Task, err error) iter.Seq2[*dtaskv1.Task, error] {
	return func(yield func(*dtaskv1.Task, error) bool) {
		for _, t := range tasks {
			if !yield(t, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

func TestAStreamedDocumentEqualsTheWholeOne(t *testing.T) {
	t.Parallel()
	job := &dtaskv1.Job{Id: "42", Name: `a "name" with <brackets>`, State: dtaskv1.JobState_JOB_STATE_RUNNING}
	for _, count := range []int{0, 1, 2, 5000} {
		var tasks []*dtaskv1.Task
		for i := range count {
			tasks = append(tasks, &dtaskv1.Task{Id: fmt.Sprint("t", i), State: dtaskv1.TaskState_TASK_STATE_FAILED, Error: "line 1\nline 2"})
		}
		for _, doc := range []struct{ without, whole any }{
			{NewJobWithTasks(job, nil), NewJobWithTasks(job, tasks)},
			{NewArrayWithTasks("42", "map", nil), NewArrayWithTasks("42", "map", tasks)},
		} {
			want, err := MarshalIndent(doc.whole)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := WriteWithTasks(&got, doc.without, tasksThen(tasks, nil)); err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want)+"\n" {
				t.Errorf("%d tasks: got\n%.300s\nwant\n%.300s", count, got.String(), want)
			}
		}
	}
}

// largestWrite remembers the largest write.
type largestWrite struct{ size, total int }

func (w *largestWrite) Write(p []byte) (int, error) {
	w.size, w.total = max(w.size, len(p)), w.total+len(p)
	return len(p), nil
}

func TestAStreamedDocumentIsWrittenInPieces(t *testing.T) {
	t.Parallel()
	var w largestWrite
	tasks := make([]*dtaskv1.Task, 20_000)
	for i := range tasks {
		tasks[i] = &dtaskv1.Task{Id: fmt.Sprint("t", i), State: dtaskv1.TaskState_TASK_STATE_PENDING}
	}
	if err := WriteWithTasks(&w, NewJobWithTasks(&dtaskv1.Job{}, nil), tasksThen(tasks, nil)); err != nil {
		t.Fatal(err)
	}
	if w.size > 2*streamChunk || w.total < 1<<20 {
		t.Errorf("%d bytes in pieces of up to %d, want at most %d", w.total, w.size, 2*streamChunk)
	}
}

func TestNothingIsWrittenIfThereIsAnErrorBeforeTheFirstTask(t *testing.T) {
	t.Parallel()
	broken := errors.New("not found")
	var w bytes.Buffer
	err := WriteWithTasks(&w, NewJobWithTasks(&dtaskv1.Job{}, nil), tasksThen(nil, broken))
	if !errors.Is(err, broken) || w.Len() > 0 {
		t.Errorf("got %v and %q", err, w.String())
	}
	if err := WriteWithTasks(&w, NewJob(&dtaskv1.Job{}), tasksThen(nil, nil)); err == nil || w.Len() > 0 {
		t.Errorf("a document without tasks: got %v and %q", err, w.String())
	}
}
