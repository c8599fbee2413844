package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

func TestAWatchHasNoGapsOrDuplicatesWhenTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 2})
	// No task ends before the watch has begun, and half of them only after the leader was
	// killed: a client that is slow gets fewer changes, but some before the kill and after it.
	begunGate, killedGate := filepath.Join(c.Dir, "begun"), filepath.Join(c.Dir, "killed")
	const n = 40
	tasks := make([]cluster.TaskFile, n, n+2)
	for i := range tasks {
		tasks[i] = cluster.Builtin(fmt.Sprintf("t%02d", i), "sleep", "300ms")
		switch before := fmt.Sprintf("t%02d", i-4); {
		case i < 4:
			tasks[i] = tasks[i].After("begun")
		case i < n/2 || i >= n/2+4:
			tasks[i] = tasks[i].After(before)
		default:
			tasks[i] = tasks[i].After(before, "killed")
		}
	}
	tasks = append(tasks, gateTask("begun", begunGate), gateTask("killed", killedGate))
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("watched", tasks...))
	cl, err := c.Client()
	clustertest.Must(t, err)
	defer func() { _ = cl.Close() }()

	merged, indexes, killed := make(map[string]*dtaskv1.Task), []uint64{}, 0
	var before map[string]string // states at the change after which the leader was killed
	for ch, err := range cl.Changes(ctx, id, client.WatchOptions{}) {
		clustertest.Must(t, err)
		if len(indexes) > 0 && ch.Index <= indexes[len(indexes)-1] {
			t.Fatalf("index %d follows %d", ch.Index, indexes[len(indexes)-1])
		}
		if ch.Whole != (len(indexes) == 0) {
			t.Errorf("change %d: got Whole = %v", len(indexes), ch.Whole)
		}
		indexes = append(indexes, ch.Index)
		if len(indexes) == 1 {
			openGate(t, begunGate)
		}
		for _, task := range ch.Tasks {
			if old := merged[task.GetId()]; old != nil && cmp.Equal(old, task, protocmp.Transform()) {
				t.Errorf("duplicate change at %d: %v", ch.Index, task)
			}
			merged[task.GetId()] = task
		}
		if killed == 0 && ch.Job.GetTasksCompleted() >= n/4 {
			killed = len(indexes) - 1
			before = statesOf(merged)
			clustertest.Must(t, clustertest.Leader(t, c).Kill())
			openGate(t, killedGate)
		}
	}
	if killed == 0 || len(indexes) < killed+2 {
		t.Fatalf("got %d changes, but the leader was killed after %d", len(indexes), killed)
	}
	t.Logf("%d changes, from index %d to %d; the leader was killed after %d", len(indexes), indexes[0], indexes[len(indexes)-1], indexes[killed])
	listed := make(map[string]*dtaskv1.Task)
	for task, err := range cl.Tasks(ctx, id, client.TaskFilter{}) {
		clustertest.Must(t, err)
		listed[task.GetId()] = task
	}
	if diff := cmp.Diff(listed, merged, protocmp.Transform()); diff != "" {
		t.Errorf("(-listed +watched):\n%s", diff)
	}

	// Another process resumes at another coordinator from the change at which the leader was killed.
	a := c.Run(ctx, "watch", id, "--from", fmt.Sprint(indexes[killed]), "-o", "json")
	clustertest.Must(t, a.Err())
	for line := range strings.Lines(a.Stdout) {
		var change struct {
			Index uint64
			Tasks []cluster.Task
		}
		clustertest.Must(t, json.Unmarshal([]byte(line), &change))
		if change.Index <= indexes[killed] {
			t.Errorf("got index %d, want above %d", change.Index, indexes[killed])
		}
		for _, task := range change.Tasks {
			before[task.ID] = task.State
		}
	}
	if diff := cmp.Diff(statesOf(listed), before); diff != "" {
		t.Errorf("dtaskctl watch --from: (-listed +watched):\n%s", diff)
	}
}

func statesOf(tasks map[string]*dtaskv1.Task) map[string]string {
	states := make(map[string]string, len(tasks))
	for id, task := range tasks {
		states[id] = strings.ToLower(strings.TrimPrefix(task.GetState().String(), "TASK_STATE_"))
	}
	return states
}
