package coordinator_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/spec"
)

func TestSubmissionsAboveAnOwnersRateAreRefusedAndCounted(t *testing.T) {
	t.Parallel()
	var at string
	c, stop := runWith(t, coordinator.Config{
		DataDir: t.TempDir(), HTTP: "127.0.0.1:0", SubmitRate: 0.01, MinFree: &coordinator.MinFree{},
		Started: func(_, address string) { at = address },
	})
	defer stop()
	job, err := spec.Single(spec.SingleTask{Type: "noop", Name: "j"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(t.Context(), job, client.SubmitOptions{Key: "first"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(t.Context(), job, client.SubmitOptions{Key: "second"}); !errors.Is(err, client.ErrBusy) {
		t.Errorf("the second job: %v, want busy", err)
	}
	if again, err := c.Submit(t.Context(), job, client.SubmitOptions{Key: "first"}); err != nil || !again.Existed {
		t.Errorf("the first job again: %+v, %v", again, err)
	}
	page := scrape(t, "http://"+at+"/metrics")
	if strings.Contains(page, `dtask_submissions_refused_total{reason="rate"} 0`) || !strings.Contains(page, `dtask_submissions_refused_total{reason="rate"}`) {
		t.Error("the refusals are not counted")
	}
}

func TestMetricsCountJobsTasksAndTheProgram(t *testing.T) {
	t.Parallel()
	at := ""
	c, stop := runWith(t, coordinator.Config{
		DataDir: t.TempDir(), HTTP: "127.0.0.1:0", MinFree: &coordinator.MinFree{}, Version: "v1",
		Started: func(_, address string) { at = address },
	})
	defer stop()
	job, err := spec.Single(spec.SingleTask{Type: "noop", Name: "j"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(t.Context(), job, client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	page := scrape(t, "http://"+at+"/metrics")
	for _, line := range []string{
		`dtask_jobs{state="pending"} 1`, `dtask_jobs{state="running"} 0`, `dtask_tasks{state="pending"} 1`, `dtask_tasks{state="dead"} 0`,
		`dtask_attempts_failed_total{reason="error",type="(others)"} 0`, `dtask_attempts_orphaned 0`,
		fmt.Sprintf(`dtask_build_info{goversion=%q,version="v1"} 1`, runtime.Version()),
	} {
		if !strings.Contains(page, "\n"+line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
}

// scrape fetches a page.
func scrape(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestInvalidRatesAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64
		burst int
		flag  string // in the error; empty = valid
	}{
		{0, 0, ""},
		{0.5, 0, ""},
		{1e6, 7, ""},
		{-1, 0, "--submit-rate"},
		{2e6, 0, "--submit-rate"},
		{math.NaN(), 0, "--submit-rate"},
		{math.Inf(1), 0, "--submit-rate"},
		{1, -1, "--submit-burst"},
		{0, 5, "--submit-burst"},
	} {
		cfg := coordinator.Config{ID: "n1", DataDir: "d", SubmitRate: c.rate, SubmitBurst: c.burst}
		err := cfg.Validate()
		if (err == nil) != (c.flag == "") || err != nil && !strings.Contains(err.Error(), c.flag) {
			t.Errorf("rate %v, burst %d: %v, want %q", c.rate, c.burst, err, c.flag)
		}
	}
}
