package api

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestStatsAreOfThisReplica(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) {
		c.Totals = func() sequencer.Stats {
			return sequencer.Stats{Entries: 1, Operations: 2, Bytes: 3, Assignments: 4, Completions: 5}
		}
		c.Process = func() Process { return Process{Syncs: 6, LeaderChanges: 7} }
	})
	got, err := r.admin.Stats(t.Context(), &dtaskv1.StatsRequest{})
	want := &dtaskv1.StatsResponse{
		Entries: 1, Operations: 2, Bytes: 3, Assignments: 4, Completions: 5, Syncs: 6, LeaderChanges: 7, AppliedIndex: r.machine.Index(),
	}
	if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(want, "heap_bytes", "rss_bytes")); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestWorkersAreShownWithTheLeadersStatus(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"), task("b"))
	w1, w2, w3 := r.worker(t), r.worker(t), r.worker(t)
	r.assign(t, held(1, 1, 1, w2))
	r.leader.op(t, &fsm.MarkWorkerDown{ID: w3, Reason: "left"})
	r.leader.statuses = map[fsm.WorkerID]sequencer.WorkerStatus{w1: {Attached: true, Draining: true}, w2: {Attached: true, Held: 1}}
	worker := func(id, name, state string, running uint32) *dtaskv1.Worker {
		return &dtaskv1.Worker{
			Id: id, Name: name, State: state, Slots: 4, Running: running, Labels: map[string]string{"zone": "eu"},
			Resources: map[string]int64{"cpu": 2000}, Version: "v", Address: "host",
		}
	}
	for _, c := range []struct {
		consistency dtaskv1.Consistency
		first       string
	}{{linearizable, "draining"}, {stale, "up"}} {
		r.leading(c.consistency == linearizable)
		got, err := r.admin.ListWorkers(t.Context(), &dtaskv1.ListWorkersRequest{Consistency: c.consistency})
		if err != nil {
			t.Fatal(err)
		}
		want := []*dtaskv1.Worker{worker("1", "w1", c.first, 0), worker("2", "w2", "up", 1), worker("3", "w3", "down", 0)}
		times := protocmp.IgnoreFields(&dtaskv1.Worker{}, "up_since", "down_since")
		if diff := cmp.Diff(want, got.GetWorkers(), protocmp.Transform(), times); diff != "" {
			t.Errorf("%v: %s", c.consistency, diff)
		}
	}
}

// The pages of a long listing of workers join without gaps, whichever replica answers,
// even if workers are forgotten between two pages.
func TestWorkersAreListedInPages(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var all []string
	for range 7 {
		all = append(all, fmt.Sprint(r.worker(t)))
	}
	for _, limit := range []uint32{0, 1, 3, 7, maxLimit} {
		var got []string
		q := &dtaskv1.ListWorkersRequest{Limit: limit}
		for more := true; more; {
			page, err := r.admin.ListWorkers(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(page.GetWorkers()); limit > 0 && n > int(limit) {
				t.Errorf("page of %d: got %d workers", limit, n)
			}
			for _, w := range page.GetWorkers() {
				got = append(got, w.GetId())
			}
			q.PageToken = page.GetNextPageToken()
			more = q.GetPageToken() != ""
		}
		if !slices.Equal(got, all) {
			t.Errorf("pages of %d: got %v, want %v", limit, got, all)
		}
	}
	r.leader.op(t, &fsm.MarkWorkerDown{ID: 3, Reason: "left"})
	r.leader.op(t, &fsm.ForgetWorkers{IDs: []fsm.WorkerID{3}})
	for _, c := range []struct {
		q    *dtaskv1.ListWorkersRequest
		want string
	}{
		{&dtaskv1.ListWorkersRequest{PageToken: "3", Limit: 1}, "4"},
		{&dtaskv1.ListWorkersRequest{PageToken: "2", Limit: 1}, "4"},
		{&dtaskv1.ListWorkersRequest{Name: "w5"}, "5"},
		{&dtaskv1.ListWorkersRequest{Name: "w5", PageToken: "5"}, ""},
		{&dtaskv1.ListWorkersRequest{Name: "w3"}, ""},
		{&dtaskv1.ListWorkersRequest{PageToken: "99"}, ""},
	} {
		page, err := r.admin.ListWorkers(t.Context(), c.q)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, w := range page.GetWorkers() {
			got += w.GetId()
		}
		if got != c.want {
			t.Errorf("%v: got %q, want %q", c.q, got, c.want)
		}
	}
	for _, q := range []*dtaskv1.ListWorkersRequest{{Limit: maxLimit + 1}, {PageToken: "x"}, {PageToken: "-1"}} {
		_, err := r.admin.ListWorkers(t.Context(), q)
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	}
}

// A page is not larger than a message may be.
func TestAPageOfWorkersIsBounded(t *testing.T) {
	t.Parallel()
	r := setup(t)
	long := strings.Repeat("x", 60<<10)
	for i := range 40 {
		r.leader.op(t, &fsm.RegisterWorker{ID: fsm.WorkerID(i + 1), Name: fmt.Sprint(i), Incarnation: "a", Labels: []fsm.Label{{Key: "k", Value: long}}})
	}
	page, err := r.admin.ListWorkers(t.Context(), &dtaskv1.ListWorkersRequest{Limit: 100})
	if n := len(page.GetWorkers()); err != nil || n == 0 || n == 40 || page.GetNextPageToken() != fmt.Sprint(n) {
		t.Errorf("got %d workers, next page %q, %v", n, page.GetNextPageToken(), err)
	}
}

func TestReadyReturnsAllReasons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // a contact is recent for five seconds
		now := time.Now()
		for _, c := range []struct {
			name    string
			raft    *fakeRaft
			reasons int
		}{
			{"no raft", nil, 1},
			{"leader", &fakeRaft{id: "n1", state: "leader"}, 0},
			{"follower", &fakeRaft{id: "n2", state: "follower", contact: now}, 0},
			{"no leader", &fakeRaft{state: "follower", contact: now}, 1},
			{"far behind", &fakeRaft{id: "n2", state: "follower", contact: now, last: 1 << 20}, 1},
			{"all", &fakeRaft{state: "follower", last: 1 << 20}, 3},
			{"stopped", &fakeRaft{state: "shutdown"}, 2},
		} {
			s := &Server{cfg: Config{Machine: fsm.NewMachine(), Raft: func() Raft {
				if c.raft == nil {
					return nil
				}
				return c.raft
			}}}
			err := s.Ready()
			got := 0
			if err != nil {
				got = len(strings.Split(err.Error(), "\n"))
			}
			if got != c.reasons {
				t.Errorf("%s: got %v, want %d reasons", c.name, err, c.reasons)
			}
		}
	})
}

func TestTheStandardHealthServiceAnswers(t *testing.T) {
	t.Parallel()
	r := setup(t)
	got, err := healthv1.NewHealthClient(r.conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || got.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestAConfigurationNamesAllThatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := NewServer(Config{MaxPayload: 1 << 20})
	if err == nil || strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("got %v, want 5 problems", err)
	}
}

// failingListener fails immediately.
type failingListener struct{ net.Listener }

func (failingListener) Accept() (net.Conn, error) { return nil, errors.New("no more files") }
func (failingListener) Close() error              { return nil }
func (failingListener) Addr() net.Addr            { return &net.TCPAddr{} }

func TestServeReturnsWhenTheListenerFails(t *testing.T) {
	t.Parallel()
	r := setup(t)
	s, err := NewServer(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), failingListener{}); err == nil || !strings.Contains(err.Error(), "no more files") {
		t.Errorf("got %v", err)
	}
}
