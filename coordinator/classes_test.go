package coordinator_test

import (
	"fmt"
	"testing"

	"github.com/dtask/dtask/scheduler/backoff"
	"github.com/dtask/dtask/spec"
)

// A class that is valid in a job file and unknown to the leader would silently match
// nothing.
func TestEveryFailureClassOfAJobFileIsKnownToTheLeader(t *testing.T) {
	t.Parallel()
	classes := []string{
		"exit:1", "exit:2-75", "exit:255", "error:Quota", "error:a_b-c.d",
		"oom", "timeout", "lost", "start", "heartbeat", "drained", "exit", "signal",
	}
	for _, s := range backoff.Signals() {
		classes = append(classes, "signal:"+s)
	}
	for _, class := range classes {
		file := fmt.Sprintf("job: {name: j, tasks: [{id: a, type: noop, retry: {except: [%q]}}]}", class)
		_, inFile := spec.Parse("job.yaml", []byte(file), spec.Options{})
		_, atLeader := backoff.ParseClass(class)
		if (inFile == nil) != (atLeader == nil) {
			t.Errorf("class %q: job file says %v, leader says %v", class, inFile, atLeader)
		}
	}
}
