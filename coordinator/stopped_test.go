package coordinator_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/spec"
)

func TestAnOrderlyStopIsRecordedUntilTheNextStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	recorded := func() bool {
		_, err := os.Stat(filepath.Join(dir, datadir.StoppedName))
		return err == nil
	}
	c, stop := run(t, dir, coordinator.MinFree{})
	submitted(t, c)
	if recorded() {
		t.Error("a running replica has the record of an orderly stop")
	}
	stop()
	if !recorded() {
		t.Error("an orderly stop is not recorded")
	}
	c, stop = run(t, dir, coordinator.MinFree{})
	submitted(t, c)
	if recorded() {
		t.Error("the record of the last stop is still there after a start")
	}
	stop()
}

// submitted submits a job: afterwards the replica leads.
func submitted(t *testing.T, c *client.Client) {
	t.Helper()
	job, err := spec.Single(spec.SingleTask{Type: "noop", Name: "job"})
	if err == nil {
		_, err = c.Submit(t.Context(), job, client.SubmitOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
