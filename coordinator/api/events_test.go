package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// eventsOf reads the events that are kept after an index, and the last index.
func eventsOf(ctx context.Context, r *replica, req *dtaskv1.WatchEventsRequest) (list []*dtaskv1.Event, index uint64, err error) {
	stream, err := r.jobs.WatchEvents(ctx, req)
	if err != nil {
		return nil, 0, err
	}
	for {
		got, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return list, index, nil
		} else if err != nil {
			return list, index, err
		}
		list, index = append(list, got.GetEvents()...), got.GetIndex()
	}
}

func kindsOf(list []*dtaskv1.Event) (kinds []string) {
	for _, e := range list {
		kinds = append(kinds, strings.TrimSuffix(e.GetKind()+" "+e.GetName(), " "))
	}
	return kinds
}

// Callers with namespaces have the events of jobs in them; those with all namespaces also
// have those of workers and of the cluster.
func TestCallersSeeTheEventsOfTheirNamespaces(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	r.submitAs(t, "submitter", "mine", "etl", task("a"))
	r.submitAs(t, "ml", "theirs", "ml", task("a"))
	r.worker(t)
	for caller, want := range map[string][]string{
		"admin": {"job.submitted mine", "job.submitted theirs", "worker.up w1"}, "operator": {"job.submitted mine", "job.submitted theirs", "worker.up w1"},
		"reader": {"job.submitted mine"}, "submitter": {"job.submitted mine"}, "ml": {"job.submitted theirs"},
	} {
		list, index, err := eventsOf(as(t.Context(), caller), r, &dtaskv1.WatchEventsRequest{})
		got := slices.DeleteFunc(kindsOf(list), func(k string) bool { return strings.HasPrefix(k, "cluster.") })
		if err != nil || !slices.Equal(got, want) || index != r.machine.Index() {
			t.Errorf("%s: got %q up to %d, %v; want %q", caller, got, index, err, want)
		}
	}
	for namespace, want := range map[string][]string{"etl": {"job.submitted mine"}, "ml": {"job.submitted theirs"}, "other": nil} {
		list, _, err := eventsOf(as(t.Context(), "admin"), r, &dtaskv1.WatchEventsRequest{Namespace: namespace})
		if got := kindsOf(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("the namespace %s: got %q, %v", namespace, got, err)
		}
	}
	list, _, err := eventsOf(as(t.Context(), "reader"), r, &dtaskv1.WatchEventsRequest{Namespace: "ml"})
	if err != nil || len(list) > 0 {
		t.Errorf("a reader names a foreign namespace: got %q, %v", kindsOf(list), err)
	}
	_, _, err = eventsOf(as(t.Context(), "admin"), r, &dtaskv1.WatchEventsRequest{Namespace: "No"})
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
}

// A follower of events gets each one once, in order, and continues at another replica that
// has applied the same log.
func TestAFollowerOfEventsContinuesAtAnotherReplica(t *testing.T) {
	t.Parallel()
	first, other := setup(t), fsm.NewMachine()
	var snapshot bytes.Buffer
	if err := errors.Join(first.machine.Snapshot().Persist(&snapshot), other.Restore(&snapshot)); err != nil {
		t.Fatal(err)
	}
	second := setup(t, func(c *Config) { c.Machine = other })
	second.leading(false)
	first.leader.also = other
	floor := first.machine.Index()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	stream, err := first.jobs.WatchEvents(ctx, &dtaskv1.WatchEventsRequest{Follow: true, AfterIndex: floor})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	index := uint64(0)
	for i, name := range []string{"one", "two", "three"} {
		first.submit(t, name, task("a"))
		for len(got) <= i {
			page, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			got, index = append(got, kindsOf(page.GetEvents())...), page.GetIndex()
		}
	}
	leave()
	if want := []string{"job.submitted one", "job.submitted two", "job.submitted three"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	first.submit(t, "four", task("a"))
	list, _, err := eventsOf(t.Context(), second, &dtaskv1.WatchEventsRequest{AfterIndex: index})
	if got := kindsOf(list); err != nil || !slices.Equal(got, []string{"job.submitted four"}) {
		t.Errorf("at the second replica: got %q, %v", got, err)
	} // It has restored a snapshot: what was before is gone there, and still at the first one.
	_, _, err = eventsOf(t.Context(), second, &dtaskv1.WatchEventsRequest{AfterIndex: floor - 1})
	wantError(t, err, codes.OutOfRange, dtaskv1.ErrorReason_ERROR_REASON_COMPACTED)
	list, _, err = eventsOf(t.Context(), second, &dtaskv1.WatchEventsRequest{})
	if err != nil || len(list) != 4 {
		t.Errorf("all that the second replica keeps: got %q, %v", kindsOf(list), err)
	}
	if list, _, err = eventsOf(t.Context(), first, &dtaskv1.WatchEventsRequest{AfterIndex: floor - 1}); err != nil || len(list) < 4 {
		t.Errorf("at the first replica: got %q, %v", kindsOf(list), err)
	}
	_, _, err = eventsOf(t.Context(), first, &dtaskv1.WatchEventsRequest{AfterIndex: first.machine.Index() + 100})
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
}

func TestEveryKindOfEventHasAName(t *testing.T) {
	t.Parallel()
	for kind := fsm.JobSubmittedEvent; kind <= fsm.LevelEvent; kind++ {
		if eventKinds[kind] == "" {
			t.Errorf("event kind %d has no name", kind)
		}
	}
}
