package api

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
)

// withLimits returns a replica at the level of limits that has the limits db and tenant/*.
func withLimits(t *testing.T) *replica {
	t.Helper()
	r := setup(t)
	r.leader.op(t, &fsm.SetLevel{Level: 3})
	for name, s := range map[string]*dtaskv1.LimitSettings{"db": {Running: 2, Rate: 50, PeriodMs: 1000}, "tenant/*": {Running: 1}} {
		if _, err := r.limits.SetLimit(t.Context(), &dtaskv1.SetLimitRequest{Name: name, Settings: s}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestLimitsAreListedWithWhatCountsAndWaits(t *testing.T) {
	t.Parallel()
	r := withLimits(t)
	got, err := r.limits.ListLimits(t.Context(), &dtaskv1.ListLimitsRequest{})
	if err != nil || len(got.GetLimits()) != 2 {
		t.Fatalf("got %v, %v; want two limits", got, err)
	}
	db, tenants := got.GetLimits()[0], got.GetLimits()[1]
	if s := db.GetSettings(); s.GetRunning() != 2 || s.GetRate() != 50 || s.GetPeriodMs() != 1000 || s.GetBurst() != 1 || db.GetHeld() != 2 || db.GetWaiting() != 7 {
		t.Errorf("got %v", db)
	}
	if tenants.GetHeld() != 1 || tenants.GetWaiting() != 3 || len(tenants.GetCounters()) != 0 {
		t.Errorf("got %v", tenants)
	}
	one, err := r.limits.ListLimits(t.Context(), &dtaskv1.ListLimitsRequest{Name: "tenant/*"})
	if err != nil || len(one.GetLimits()) != 1 || len(one.GetLimits()[0].GetCounters()) != 2 {
		t.Errorf("got %v, %v; want the counters of two keys", one, err)
	}
	_, err = r.limits.ListLimits(t.Context(), &dtaskv1.ListLimitsRequest{Name: "bd"})
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	if !strings.Contains(err.Error(), `did you mean "db"?`) {
		t.Errorf("got %v", err)
	}
}

// A limit may have a key for each user. Clients take messages of up to 4 MiB.
func TestTheCountersOfALimitWithManyKeysFitIntoAMessage(t *testing.T) {
	t.Parallel()
	r := withLimits(t)
	const keys = 100_000
	for i := range keys {
		x := sequencer.LimitLoad{LimitLoad: scheduler.LimitLoad{Name: fmt.Sprintf("tenant/%050d", i), Running: 1, Waiting: 1}}
		r.leader.limitLoads = append(r.leader.limitLoads, x)
	}
	r.leader.limitLoads[keys-1].Waiting = 5
	got, err := r.limits.ListLimits(t.Context(), &dtaskv1.ListLimitsRequest{Name: "tenant/*"})
	if err != nil {
		t.Fatal(err)
	}
	l := got.GetLimits()[0]
	if n := len(l.GetCounters()); l.GetWaiting() != keys+4 || n < 10_000 || l.GetCounters()[n-1].GetWaiting() != 5 {
		t.Errorf("%d tasks wait for %d counters, want %d, and at least 10,000 counters, among them the one with 5 tasks", l.GetWaiting(), n, keys+4)
	}
}

// Holders are tasks: only those that the caller may see are named.
func TestHoldersOfALimitInOtherNamespacesAreNotNamed(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	m.leader.op(t, &fsm.SetLevel{Level: 3})
	m.leader.op(t, &fsm.SetLimit{Name: "db", LimitSettings: fsm.LimitSettings{Running: 2}, AtMS: 1})
	own, foreign := m.submitAs(t, "submitter", "own", "etl", task("a")), m.submitAs(t, "ml", "foreign", "ml", task("a"))
	if own != 1 || foreign != 2 {
		t.Fatalf("got jobs %d and %d, want 1 and 2", own, foreign)
	}
	for caller, want := range map[string]string{"submitter": "1/a", "ml": "2/a", "admin": "1/a 2/a"} {
		got, err := m.limits.ListLimits(as(t.Context(), caller), &dtaskv1.ListLimitsRequest{Name: "db"})
		if err != nil {
			t.Fatal(err)
		}
		if holders := strings.Join(got.GetLimits()[0].GetCounters()[0].GetHolders(), " "); holders != want {
			t.Errorf("%s sees the holders %q, want %q", caller, holders, want)
		}
	}
	// Likewise of the reason of a task that waits for the limit.
	m.leader.explain = func(e *sequencer.Explanation) {
		full := sequencer.LimitLoad{LimitLoad: scheduler.LimitLoad{Name: "db", Running: 2, Held: 2}, Holders: []fsm.TaskRef{{Job: 2}, {Job: 1}}}
		e.Capacity = capacityOf(&sequencer.Capacity{EverFits: true, Complete: true, Limits: []sequencer.LimitLoad{full}})
	}
	for caller, want := range map[string]string{"submitter": "such as those of 1/a", "admin": "held by 2/a, 1/a"} {
		got, err := m.jobs.Explain(as(t.Context(), caller), &dtaskv1.ExplainRequest{Job: "1", Task: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if text, full := got.GetReasons()[0].GetText(), "limit db is full: 2 attempts of 2, "+want; text != full {
			t.Errorf("%s: got %q, want %q", caller, text, full)
		}
	}
}

func TestLimitsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	r := withLimits(t)
	for want, s := range map[string]*dtaskv1.LimitSettings{
		"running: missing, as is a rate": {},
		"rate: missing; set it beside":   {Running: 1, Burst: 3},
		"period_ms: missing":             {Rate: 3},
		"rate: 20000000 is out of range": {Rate: 20_000_000, PeriodMs: 1000},
		"period_ms: 90000000 is out of":  {Rate: 1, PeriodMs: 90_000_000},
		"burst: 2000000 is out of range": {Rate: 1, PeriodMs: 1000, Burst: 2_000_000},
	} {
		_, err := r.limits.SetLimit(t.Context(), &dtaskv1.SetLimitRequest{Name: "db", Settings: s})
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		if faults := strings.Join(detailOf(err).GetFaults(), "\n"); !strings.Contains(faults, want) {
			t.Errorf("got %q, want %q", faults, want)
		}
	}
	for _, name := range []string{"", "a b", "/*", "tenant/acme", "*"} {
		_, err := r.limits.SetLimit(t.Context(), &dtaskv1.SetLimitRequest{Name: name, Settings: &dtaskv1.LimitSettings{Running: 1}})
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	}
	_, err := r.limits.SetLimit(t.Context(), &dtaskv1.SetLimitRequest{Name: "db", Settings: &dtaskv1.LimitSettings{Running: 1}, IfVersion: 7})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	if !strings.Contains(err.Error(), "has version 1, and the request expects version 7") {
		t.Errorf("got %v", err)
	}
}

// A request that is repeated because its answer was lost has an old version.
func TestSettingsThatAreSetAlreadyAreAcceptedAtAnyVersion(t *testing.T) {
	t.Parallel()
	r := withLimits(t)
	for _, version := range []uint32{0, 1, 7} { // the first one makes the queue
		l, err := r.limits.SetLimit(t.Context(), &dtaskv1.SetLimitRequest{Name: "tenant/*", Settings: &dtaskv1.LimitSettings{Running: 1}, IfVersion: version})
		if err != nil || l.GetLimit().GetVersion() != 1 {
			t.Errorf("limit, expecting version %d: got %v, %v", version, l, err)
		}
		q, err := r.queues.SetQueue(t.Context(), &dtaskv1.SetQueueRequest{Name: "etl", Settings: &dtaskv1.QueueSettings{Weight: 3}, IfVersion: version})
		if err != nil || q.GetQueue().GetVersion() != 1 {
			t.Errorf("queue, expecting version %d: got %v, %v", version, q, err)
		}
	}
}

// using returns a policy of tasks that use limits.
func using(uses ...string) *dtaskv1.TaskPolicy {
	p := header("").GetPolicies()[0]
	p.Uses = uses
	return p
}

// Tasks use keys of such a limit, which have no settings of their own.
func TestTheKeyOfALimitIsNotFoundAndItsLimitIsNamed(t *testing.T) {
	t.Parallel()
	r := withLimits(t)
	for name, want := range map[string]string{
		"tenant/acme": `limit "tenant/acme" not found; it is a key of the limit "tenant/*"`,
		"db/acme":     `limit "db/acme" not found`,
		"bd":          `limit "bd" not found; did you mean "db"?`,
	} {
		_, show := r.limits.ListLimits(t.Context(), &dtaskv1.ListLimitsRequest{Name: name})
		_, remove := r.limits.DeleteLimit(t.Context(), &dtaskv1.DeleteLimitRequest{Name: name})
		for _, err := range []error{show, remove} {
			wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
			if got := status.Convert(err).Message(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
}

func TestAJobThatUsesAnUnknownLimitIsRefused(t *testing.T) {
	t.Parallel()
	r := withLimits(t)
	for use, want := range map[string]string{
		"bd":           `uses: unknown limit "bd"; did you mean "db"?`,
		"tenants/acme": `uses: unknown limit "tenants/*", which "tenants/acme" needs; did you mean "tenant/*"?`,
		"db/acme":      `uses: unknown limit "db/*", which "db/acme" needs`,
	} {
		h := header("unknown")
		h.Policies = []*dtaskv1.TaskPolicy{using(use)}
		_, err := r.send(t.Context(), request("unknown-"+use, h, task("a")))
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		if faults := strings.Join(detailOf(err).GetFaults(), "\n"); !strings.Contains(faults, want) {
			t.Errorf("got %q, want %q", faults, want)
		}
	}
	h := header("known")
	h.Policies = []*dtaskv1.TaskPolicy{using("db", "tenant/acme")}
	if _, err := r.send(t.Context(), request("known", h, task("a"))); err != nil {
		t.Fatal(err)
	}
	_, err := r.limits.DeleteLimit(t.Context(), &dtaskv1.DeleteLimitRequest{Name: "tenant/*"})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
}

func TestLimitsNeedTheLevelOfAllReplicas(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("early")
	h.Policies = []*dtaskv1.TaskPolicy{using("db")}
	_, err := r.send(t.Context(), request("early", h, task("a")))
	if err == nil || !strings.Contains(err.Error(), "limits require 3: finish the upgrade") {
		t.Errorf("got %v", err)
	}
}

// What a user can do about an unknown name is the hint of the command; the error is the same
// for every client.
func TestANameThatIsNearNoOtherIsJustNotFound(t *testing.T) {
	t.Parallel()
	r := withLimits(t)
	show := func(name string) error {
		_, err := r.limits.ListLimits(t.Context(), &dtaskv1.ListLimitsRequest{Name: name})
		return err
	}
	_, deleted := r.limits.DeleteLimit(t.Context(), &dtaskv1.DeleteLimitRequest{Name: "nope"})
	_, queue := r.queues.ListQueues(t.Context(), &dtaskv1.ListQueuesRequest{Name: "nope"})
	job := r.submit(t, "moved", task("a"))
	_, moved := r.jobs.Update(t.Context(), &dtaskv1.UpdateRequest{Job: formatJobID(job), Queue: "nope", IdempotencyKey: "move"})
	for _, x := range []struct {
		err  error
		want string
	}{
		{show("nope"), `limit "nope" not found`},
		{show("bd"), `limit "bd" not found; did you mean "db"?`},
		{deleted, `limit "nope" not found`},
		{queue, `queue "nope" not found`},
		{moved, `queue "nope" not found`},
	} {
		wantError(t, x.err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
		if got := status.Convert(x.err).Message(); got != x.want {
			t.Errorf("got %q, want %q", got, x.want)
		}
	}
}

// The bounds of a rate stand in spec and in fsm, which don't import each other.
func TestTheLargestRatesThatMayBeSetAreThoseOfTheState(t *testing.T) {
	t.Parallel()
	r := withLimits(t)
	set := func(rate, period, burst uint32) error {
		limit := &dtaskv1.LimitSettings{Rate: rate, PeriodMs: period, Burst: burst}
		queue := &dtaskv1.QueueSettings{SubmitRate: rate, SubmitPeriodMs: period, SubmitBurst: burst}
		_, err := r.limits.SetLimit(t.Context(), &dtaskv1.SetLimitRequest{Name: "db", Settings: limit})
		_, other := r.queues.SetQueue(t.Context(), &dtaskv1.SetQueueRequest{Name: "web", Settings: queue})
		if status.Code(err) != status.Code(other) {
			t.Errorf("%d in %d ms, %d at once: limit %v, queue %v", rate, period, burst, err, other)
		}
		return err
	}
	if err := set(fsm.MaxRate, fsm.MaxRatePeriodMS, fsm.MaxRateBurst); err != nil {
		t.Errorf("the largest: %v", err)
	}
	for _, x := range [][3]uint32{{fsm.MaxRate + 1, 1, 1}, {1, fsm.MaxRatePeriodMS + 1, 1}, {1, 1, fsm.MaxRateBurst + 1}, {0, 1, 0}, {1, 0, 1}} {
		wantError(t, set(x[0], x[1], x[2]), codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	}
}

// The job was checked before the queue, or the limit, was deleted.
func TestAJobWhoseQueueOrLimitIsDeletedMeanwhileIsInvalid(t *testing.T) {
	t.Parallel()
	for want, deletion := range map[string]fsm.Op{
		`job.queue: unknown queue "etl"; dtaskctl queue list shows the queues`: &fsm.DeleteQueue{Name: "etl"},
		`uses: unknown limit "db"; dtaskctl limit list shows the limits`:       &fsm.DeleteLimit{Name: "db"},
	} {
		r := withLimits(t)
		r.leader.op(t, &fsm.SetQueue{Name: "etl", QueueSettings: fsm.QueueSettings{Weight: 1}, AtMS: 1})
		r.leader.before = func() { r.leader.op(t, deletion) }
		h := header("x")
		h.Queue, h.Policies[0].Uses = "etl", []string{"db"}
		_, err := r.send(t.Context(), request("k", h, task("a")))
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		if faults := strings.Join(detailOf(err).GetFaults(), "\n"); faults != want {
			t.Errorf("got %q, want %q", faults, want)
		}
	}
}
