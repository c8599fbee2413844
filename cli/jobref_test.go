package cli

import (
	"errors"
	"slices"
	"testing"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// leaderAndClient returns a leader and a client of it.
func leaderAndClient(t *testing.T) (*fakeLeader, *client.Client) {
	t.Helper()
	leader := newFakeLeader()
	return leader, clientOf(t, leader)
}

// clientOf serves a leader and returns a client of it.
func clientOf(t *testing.T, leader *fakeLeader) *client.Client {
	t.Helper()
	addr, done, err := leader.serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAnIDIsResolvedWithoutACall(t *testing.T) {
	t.Parallel()
	a, _, _ := setup(t, nil)
	var none *client.Client // a call would panic
	if ids, err := a.jobs(t.Context(), none, []string{"42", "43", "42"}); err != nil || !slices.Equal(ids, []string{"42", "43"}) {
		t.Errorf("got %v, %v; want 42 and 43", ids, err)
	}
	if r, err := a.taskRef(t.Context(), none, "42/map[17]:a"); err != nil || r.String() != "42/map[17]:a" {
		t.Errorf("got %v, %v", r, err)
	}
	for _, arg := range []string{"", "0", "-1", "etl", "4 2", "42@", "@", "@/a", "42/", "@etl/", "prod:42", "prod:42/a", "prod:@etl"} {
		if r, err := a.ref(t.Context(), none, arg); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("%q: got %v, %v; want not found", arg, r, err)
		}
	}
}

// A client of several clusters will need CELL:JOB/TASK. Until then no name may look like one;
// in the ID of a task, which follows the slash, a colon is clear.
func TestAColonBeforeAJobIsReserved(t *testing.T) {
	t.Parallel()
	a, _, _ := setup(t, nil)
	var none *client.Client // a call would panic
	for _, arg := range []string{"prod:42", "prod:42/a", "42:", ":42", "prod:"} {
		if r, err := a.ref(t.Context(), none, arg); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("%q: got %v, %v; want not found", arg, r, err)
		}
	}
	if r, err := a.ref(t.Context(), none, "42/fetch:a"); err != nil || r.job != "42" || r.task != "fetch:a" {
		t.Errorf("got %+v, %v; want task fetch:a of job 42", r, err)
	}
	const name = "prod:etl"
	_, contextErr := parseContextName(name)
	_, identityErr := parseIdentityName(name)
	for what, err := range map[string]error{"job": spec.CheckName(name), "namespace": auth.CheckNamespace(name), "context": contextErr, "identity": identityErr} {
		if err == nil {
			t.Errorf("the name of a %s may have a colon", what)
		}
	}
}

func TestACommandResolvesANameOnce(t *testing.T) {
	t.Parallel()
	leader, c := leaderAndClient(t)
	a, _, _ := setup(t, nil)
	if id, err := a.job(t.Context(), c, "@two"); err != nil || id != "43" {
		t.Fatalf("got %q, %v; want 43", id, err)
	}
	leader.store(&dtaskv1.JobPart{Header: &dtaskv1.JobHeader{Name: "two"}})
	if r, err := a.ref(t.Context(), c, "@two/b"); err != nil || r.job != "43" {
		t.Errorf("in the same command: got %v, %v; want job 43", r, err)
	}
	next, _, _ := setup(t, nil)
	if id, err := next.job(t.Context(), c, "@two"); err != nil || id != "101" {
		t.Errorf("in the next command: got %q, %v; want 101, the newest", id, err)
	}
}

func TestANameThatIsNotUTF8IsNotFound(t *testing.T) {
	t.Parallel()
	_, c := leaderAndClient(t)
	a, _, _ := setup(t, nil)
	if id, err := a.job(t.Context(), c, "@\xff"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("got %q, %v; want not found", id, err)
	}
}

func TestALargeChangeOfDeadLettersListsSomeOfItsJobs(t *testing.T) {
	t.Parallel()
	var d changedDeadLetters
	d.add(jobRef{job: "1", name: "a"}, 2)
	d.add(jobRef{job: "1", name: "a"}, 1)
	if got := d.lines("purged"); !slices.Equal(got, []string{"3 dead letters of job 1 (a) purged"}) {
		t.Errorf("one job: got %q", got)
	}
	for _, id := range []string{"2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"} {
		d.add(jobRef{job: id}, 1)
	}
	got := d.lines("purged")
	want := []string{"… and those of 2 more jobs", "14 dead letters purged"}
	if len(got) != 12 || !slices.Equal(got[10:], want) {
		t.Errorf("got %d lines that end with %q, want ten jobs and %q", len(got), got[len(got)-2:], want)
	}
}
