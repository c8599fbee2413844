package dtaskworker

import (
	"io"
	"net/http"
	"strings"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
)

// get returns the body of a page with status 200.
func get(t *testing.T, url string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		t.Errorf("%s: got %s", url, response.Status)
	}
	return string(text), err
}

func TestTheProgramServesItsMetricsUntilItIsDrained(t *testing.T) {
	t.Parallel()
	address, err := cluster.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l, join := lead(t, "echo done", "exit 3", "sleep 600")
	cmd, log := startProgram(t, "--join", join, "--name", "seen", "--work-dir", t.TempDir(), "--slots", "3", "--http", address, "--drain-timeout", "1h")
	<-l.hello
	for range 2 {
		<-l.outcomes
	}
	until(t, func() bool { // an attempt that has not started is released at once
		text, err := get(t, "http://"+address+"/metrics")
		return err == nil && strings.Contains(text, "\ndtask_worker_attempts_running 1\n")
	})
	signal(t, cmd)
	awaitLine(t, log, "draining")
	until(t, func() bool {
		text, err := get(t, "http://"+address+"/metrics")
		return err == nil && strings.Contains(text, "\ndtask_worker_outcomes_pending 0\n")
	})
	page, err := get(t, "http://"+address+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"dtask_worker_connected 1", "dtask_worker_slots 3", "dtask_worker_attempts_running 1", "dtask_worker_attempts_queued 0",
		"dtask_worker_attempts_received_total 3", `dtask_worker_attempts_ended_total{outcome="succeeded"} 1`,
		`dtask_worker_attempts_ended_total{outcome="failed"} 1`, "dtask_worker_sessions_total 1", "dtask_worker_supervisors_lost_total 0",
		"dtask_worker_output_dropped_bytes_total 0",
	} {
		if !strings.Contains(page, "\n"+line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
	if text, err := get(t, "http://"+address+"/healthz"); err != nil || !strings.Contains(text, `"ok"`) {
		t.Errorf("/healthz: got %q, %v", text, err)
	}
	signal(t, cmd)
	if o := <-l.outcomes; o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED {
		t.Errorf("outcome of what would not end = %v, want released", o)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
	if _, err := get(t, "http://"+address+"/healthz"); err == nil {
		t.Error("the program has ended and is served")
	}
}
