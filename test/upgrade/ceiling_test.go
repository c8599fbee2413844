package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// Bounds of the measurement of the ceiling.
const (
	ceilingWarmUp  = 2 * time.Second
	ceilingTime    = 6 * time.Second
	ceilingClients = 8   // each waits for its job before it submits the next one
	ceilingTasks   = 500 // of each job
)

// A rate is the load that a test asks for: tasks per second, or a share of the ceiling.
type rate struct{ tasks, percent int }

// parseRate reads a rate such as 200 or 80%.
func parseRate(text string) (r rate, err error) {
	number, isShare := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || n < 1:
		return r, fmt.Errorf("invalid %s %q: must be tasks per second, or a share of the ceiling such as 80%%", rateVariable, text)
	case isShare && n > 100:
		return r, fmt.Errorf("invalid %s %q: must be at most 100%%", rateVariable, text)
	case isShare:
		return rate{percent: n}, nil
	}
	return rate{tasks: n}, nil
}

// wantedRate reads the variable of the rate.
func wantedRate(t *testing.T) rate {
	t.Helper()
	r, err := parseRate(cmp.Or(os.Getenv(rateVariable), "200"))
	clustertest.Must(t, err)
	return r
}

// tasksPerSecond returns the load. For a share, it first measures how many tasks per second
// the base build completes on this machine, in the same cluster.
func (u *upgrade) tasksPerSecond(r rate) int {
	u.t.Helper()
	if r.percent == 0 {
		return r.tasks
	}
	ceiling, err := u.ceiling(u.t.Context())
	clustertest.Must(u.t, err)
	u.measured = ceiling
	share := max(1, ceiling*r.percent/100)
	u.t.Logf("the base build completes %d tasks per second; the load is %d %% of that, %d", ceiling, r.percent, share)
	return share
}

// ceiling returns how many tasks per second the cluster completes if it always has more.
// Its tasks are not in the ledger afterwards.
func (u *upgrade) ceiling(ctx context.Context) (int, error) {
	cl, err := u.Client()
	if err != nil {
		return 0, fmt.Errorf("connecting: %w", err)
	}
	defer func() { _ = cl.Close() }() // nothing was written
	job, err := spec.Parse("ceiling", []byte(loadFile(ceilingTasks)), spec.Options{})
	if err != nil {
		return 0, fmt.Errorf("building the job: %w", err)
	}
	start := time.Now()
	var (
		clients sync.WaitGroup
		counted atomic.Int64
		faults  [ceilingClients]error
	)
	for i := range faults {
		clients.Go(func() {
			for faults[i] == nil && time.Since(start) < ceilingWarmUp+ceilingTime {
				faults[i] = runJob(ctx, cl, job)
				if at := time.Since(start); at >= ceilingWarmUp && at < ceilingWarmUp+ceilingTime {
					counted.Add(ceilingTasks)
				}
			}
		})
	}
	clients.Wait()
	if err := errors.Join(faults[:]...); err != nil {
		return 0, err
	}
	// The workers append, and none of their tasks runs now.
	if err := os.Truncate(u.ledger(), 0); err != nil {
		return 0, fmt.Errorf("emptying the ledger: %w", err)
	}
	return int(counted.Load()) / int(ceilingTime.Seconds()), nil
}

// runJob submits a job and waits for its end.
func runJob(ctx context.Context, cl *client.Client, job *dtaskv1.JobSpec) error {
	got, err := cl.Submit(ctx, job, client.SubmitOptions{})
	if err != nil {
		return fmt.Errorf("submitting: %w", err)
	}
	for _, err := range cl.WaitMany(ctx, []string{got.ID}) {
		if err != nil {
			return fmt.Errorf("waiting for job %s: %w", got.ID, err)
		}
	}
	return nil
}

func TestARateIsANumberOrAShareOfTheCeiling(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]rate{"200": {tasks: 200}, "80%": {percent: 80}} {
		if got, err := parseRate(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "x", "101%", "%"} {
		if got, err := parseRate(text); err == nil {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}
