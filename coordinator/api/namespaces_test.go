package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// listed returns the IDs of all jobs that an identity lists, page by page.
func (r *replica) listed(t *testing.T, name string, req *dtaskv1.ListJobsRequest) (ids []string, pages int) {
	t.Helper()
	for {
		resp, err := r.jobs.ListJobs(as(t.Context(), name), req)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, j := range resp.GetJobs() {
			ids = append(ids, j.GetId())
		}
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return ids, pages
		}
	}
}

// wantIDs compares lists of IDs.
func wantIDs(t *testing.T, what string, got []string, want ...fsm.JobID) {
	t.Helper()
	var texts []string
	for _, id := range want {
		texts = append(texts, formatJobID(id))
	}
	if !slices.Equal(got, texts) {
		t.Errorf("%s: got jobs %v, want %v", what, got, texts)
	}
}

func TestAListingHasFullPagesOfTheCallersJobsOnly(t *testing.T) {
	t.Parallel()
	for name, archived := range map[string]bool{"in the state": false, "in the history": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, change := withHistory(t, false, nil)
			r := setupIdentities(t, change)
			var own, plain []fsm.JobID
			for i := range 4 {
				own = append(own, r.submitAs(t, "submitter", fmt.Sprint("own", i), "", task("a")))
				r.submitAs(t, "ml", fmt.Sprint("foreign", i), "", task("a"))
				r.submitAs(t, "ml", fmt.Sprint("other", i), "", task("a"))
				plain = append(plain, r.submitAs(t, "admin", fmt.Sprint("plain", i), "", task("a")))
			}
			if archived {
				var all []fsm.JobID
				for id := own[0]; id <= plain[3]; id++ {
					if _, err := r.jobs.Cancel(as(t.Context(), "admin"), &dtaskv1.CancelRequest{Job: formatJobID(id)}); err != nil {
						t.Fatal(err)
					}
					all = append(all, id)
				}
				r.leader.op(t, &fsm.Archive{Items: all})
			}
			slices.Reverse(own)
			slices.Reverse(plain)
			ids, pages := r.listed(t, "reader", &dtaskv1.ListJobsRequest{Limit: 2})
			wantIDs(t, "reader", ids, own...)
			if pages > 3 {
				t.Errorf("%d pages of 2 for 4 jobs", pages)
			}
			first, err := r.jobs.ListJobs(as(t.Context(), "reader"), &dtaskv1.ListJobsRequest{Limit: 3})
			if err != nil || len(first.GetJobs()) != 3 {
				t.Errorf("first page: got %d jobs, %v, want 3", len(first.GetJobs()), err)
			}
			for _, c := range []struct {
				caller, namespace string
				want              []fsm.JobID
			}{
				{"both", "etl", own},
				{"reader", "ml", nil},
				{"none", "", nil},
				{"none", "etl", nil},
				{"admin", "etl", own},
				{"admin", "default", plain},
				{"all", "default", plain},
				{"reader", "default", nil},
				{"admin", "nothing", nil},
			} {
				ids, _ := r.listed(t, c.caller, &dtaskv1.ListJobsRequest{Namespace: c.namespace})
				wantIDs(t, c.caller+" lists "+c.namespace, ids, c.want...)
			}
			for caller, want := range map[string]int{"admin": 16, "all": 16, "both": 12, "default": 8} {
				if ids, _ := r.listed(t, caller, &dtaskv1.ListJobsRequest{}); len(ids) != want {
					t.Errorf("%s: got %d jobs, want %d", caller, len(ids), want)
				}
			}
			_, err = r.jobs.GetJob(as(t.Context(), "ml"), &dtaskv1.GetJobRequest{Id: formatJobID(own[0])})
			wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
			if _, err = r.jobs.GetJob(as(t.Context(), "reader"), &dtaskv1.GetJobRequest{Id: formatJobID(own[0])}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A team that uses a key must neither learn of nor block the key of another team.
func TestKeysOfNamespacesAreSeparate(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	etl, ml, plain := r.submitAs(t, "both", "k", "etl", task("a")), r.submitAs(t, "both", "k", "ml", task("a")), r.submitAs(t, "admin", "k", "", task("a"), task("b"))
	if etl == ml || etl == plain || ml == plain {
		t.Fatalf("jobs %d, %d and %d: want three", etl, ml, plain)
	}
	if again := r.submitAs(t, "submitter", "k", "etl", task("a")); again != etl {
		t.Errorf("repeated: got job %d, want %d", again, etl)
	}
	for _, id := range []fsm.JobID{etl, ml, plain} {
		job, err := r.jobs.GetJob(as(t.Context(), "admin"), &dtaskv1.GetJobRequest{Id: formatJobID(id)})
		if err != nil || job.GetKey() != "k" {
			t.Errorf("job %d: got key %q, %v", id, job.GetKey(), err)
		}
	}
	for _, key := range []string{"\x00etl\x00k", "\x00"} {
		_, err := r.send(as(t.Context(), "admin"), request(key, header("x"), task("a")))
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		_, err = r.jobs.Retry(as(t.Context(), "admin"), &dtaskv1.RetryRequest{Job: formatJobID(plain), IdempotencyKey: key})
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	}
	update := func(caller string, id fsm.JobID) (*dtaskv1.UpdateResponse, error) {
		return r.jobs.Update(as(t.Context(), caller), &dtaskv1.UpdateRequest{Job: formatJobID(id), IdempotencyKey: "change", Priority: dtaskv1.Priority_PRIORITY_HIGH})
	}
	for _, c := range []struct {
		caller string
		id     fsm.JobID
	}{{"submitter", etl}, {"ml", ml}, {"admin", plain}} {
		for k := range 2 {
			if got, err := update(c.caller, c.id); err != nil || got.GetVersion() != 2 || got.GetExisted() != (k == 1) {
				t.Errorf("%s updates job %d: got %v, %v", c.caller, c.id, got, err)
			}
		}
	}
}

// The outcome of a change is known by its key after the job itself is forgotten.
func TestAChangeIsRepeatedAfterItsJobExpired(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t) // without a history, archived jobs are gone
	id := r.submitAs(t, "both", "k", "ml", task("a"))
	req := &dtaskv1.UpdateRequest{Job: formatJobID(id), IdempotencyKey: "change", Priority: dtaskv1.Priority_PRIORITY_HIGH}
	if _, err := r.jobs.Update(as(t.Context(), "both"), req); err != nil {
		t.Fatal(err)
	}
	if _, err := r.jobs.Cancel(as(t.Context(), "both"), &dtaskv1.CancelRequest{Job: formatJobID(id)}); err != nil {
		t.Fatal(err)
	}
	r.leader.op(t, &fsm.Archive{Items: []fsm.JobID{id}})
	if got, err := r.jobs.Update(as(t.Context(), "both"), req); err != nil || !got.GetExisted() || got.GetVersion() != 2 {
		t.Errorf("got %v, %v, want the first outcome", got, err)
	}
	_, err := r.jobs.Update(as(t.Context(), "submitter"), req)
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
}

func TestAJobIsInANamespaceThatItsCallerHas(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	for _, c := range []struct{ caller, named, want string }{
		{"submitter", "", "etl"},
		{"submitter", "etl", "etl"},
		{"both", "ml", "ml"},
		{"default", "", ""},
		{"default", "default", ""},
		{"default", "etl", "etl"},
		{"all", "", ""},
		{"all", "new", "new"},
		{"admin", "", ""},
		{"operator", "ops", "ops"},
		{"socket", "", ""},
	} {
		id := r.submitAs(t, c.caller, c.caller+c.named, c.named, task("a"))
		job, err := r.jobs.GetJob(as(t.Context(), "admin"), &dtaskv1.GetJobRequest{Id: formatJobID(id)})
		if err != nil || job.GetNamespace() != c.want {
			t.Errorf("%s submits to %q: got namespace %q, %v, want %q", c.caller, c.named, job.GetNamespace(), err, c.want)
		}
	}
	for _, c := range []struct {
		caller, named string
		code          codes.Code
		reason        dtaskv1.ErrorReason
		text          string
	}{
		{"submitter", "ml", codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED, `submitter ci (etl) may not submit to the namespace "ml"`},
		{"submitter", "default", codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED, `may not submit to the namespace "default"`},
		{"none", "", codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED, "has no namespace"},
		{"both", "", codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID, "name one of etl, ml"},
		{"admin", "No", codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID, "job.namespace"},
		{"submitter", "*", codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID, "job.namespace"},
	} {
		h := header("x")
		h.Namespace = c.named
		_, err := r.send(as(t.Context(), c.caller), request("x", h, task("a")))
		d := wantError(t, err, c.code, c.reason)
		if text := err.Error() + strings.Join(d.GetFaults(), " "); !strings.Contains(text, c.text) {
			t.Errorf("%s submits to %q: got %q, want it to contain %q", c.caller, c.named, text, c.text)
		}
	}
}

// Each job of a stream is checked, and one that is refused leaves the others alone.
func TestEachJobOfAStreamIsChecked(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	needed := r.submitAs(t, "ml", "needed", "", task("a"))
	part := func(number uint64, namespace string, needs ...*dtaskv1.JobNeed) *dtaskv1.JobPart {
		h := header("x")
		h.Namespace, h.Needs = namespace, needs
		p := request(fmt.Sprint("k", number), h, task("a"))
		p.Job = number
		return p
	}
	need := func(id fsm.JobID) *dtaskv1.JobNeed {
		return &dtaskv1.JobNeed{Job: uint64(id), Condition: dtaskv1.Condition_CONDITION_ENDED}
	}
	got, err := r.exchange(as(t.Context(), "submitter"), &dtaskv1.SubmitRequest{Parts: []*dtaskv1.JobPart{
		part(1, ""), part(2, "ml"), part(3, "etl"), part(4, "", need(needed)), part(5, "", need(needed+1000)),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for number, want := range map[uint64]codes.Code{1: codes.OK, 2: codes.PermissionDenied, 3: codes.OK, 4: codes.NotFound, 5: codes.NotFound} {
		if code := codes.Code(got[number].GetCode()); code != want {
			t.Errorf("job %d: got %v, %s, want %v", number, code, got[number].GetMessage(), want)
		}
	}
	if a, b := got[4].GetMessage(), got[5].GetMessage(); strings.ReplaceAll(a, fmt.Sprint(needed), "N") != strings.ReplaceAll(b, fmt.Sprint(needed+1000), "N") {
		t.Errorf("a need in another namespace: %q, an unknown one: %q", a, b)
	}
}

func TestWaitingForAJobOfAnotherNamespaceIsLikeWaitingForAnUnknownOne(t *testing.T) {
	t.Parallel()
	h, change := withHistory(t, true, nil)
	r := setupIdentities(t, change)
	live, ended, gone := r.submitAs(t, "ml", "live", "", task("a")), r.submitAs(t, "ml", "ended", "", task("a")), r.submitAs(t, "ml", "gone", "", task("a"))
	own := r.submitAs(t, "submitter", "own", "", task("a"))
	for _, id := range []fsm.JobID{ended, gone, own} {
		if _, err := r.jobs.Cancel(as(t.Context(), "admin"), &dtaskv1.CancelRequest{Job: formatJobID(id)}); err != nil {
			t.Fatal(err)
		}
	}
	r.leader.op(t, &fsm.Archive{Items: []fsm.JobID{gone}})
	if err := h.Sync(t.Context(), r.machine.Index()); err != nil {
		t.Fatal(err)
	}
	ids := []string{formatJobID(live), formatJobID(ended), formatJobID(gone), formatJobID(own), "4711"}
	stream, err := r.jobs.WaitJobs(as(t.Context(), "reader"), &dtaskv1.WaitJobsRequest{Jobs: ids})
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if got := m.GetUnknown(); !slices.Equal(got, []string{ids[0], ids[1], ids[2], "4711"}) || m.GetRemaining() != 0 || m.GetTasksCompleted() != 0 {
		t.Errorf("got unknown %v, %d remaining, %d tasks completed", got, m.GetRemaining(), m.GetTasksCompleted())
	}
	if got := m.GetFinished(); len(got) != 1 || got[0].GetId() != ids[3] {
		t.Errorf("got finished %v, want job %s", got, ids[3])
	}
}

func TestDeadLettersOfOtherNamespacesAreNotListed(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	w := r.worker(t)
	var ids []fsm.JobID
	for i, caller := range []string{"submitter", "ml", "ml", "submitter", "admin"} {
		id := r.submitAs(t, caller, fmt.Sprint(i), "", task("a"))
		r.fails(t, held(id, 0, 1, w), fsm.NextDead, "x")
		ids = append(ids, id)
	}
	list := func(caller string, req *dtaskv1.ListDeadLettersRequest) (got []string, pages int) {
		t.Helper()
		for {
			resp, err := r.jobs.ListDeadLetters(as(t.Context(), caller), req)
			if err != nil {
				t.Fatal(err)
			}
			pages++
			for _, l := range resp.GetDeadLetters() {
				got = append(got, l.GetJob())
			}
			if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
				return got, pages
			}
		}
	}
	got, _ := list("reader", &dtaskv1.ListDeadLettersRequest{Limit: 1})
	wantIDs(t, "reader", got, ids[3], ids[0])
	got, pages := list("reader", &dtaskv1.ListDeadLettersRequest{Limit: 2})
	wantIDs(t, "reader, one page", got, ids[3], ids[0])
	if pages > 2 {
		t.Errorf("got %d pages", pages)
	}
	got, _ = list("both", &dtaskv1.ListDeadLettersRequest{Namespace: "ml"})
	wantIDs(t, "ml", got, ids[2], ids[1])
	got, _ = list("reader", &dtaskv1.ListDeadLettersRequest{Namespace: "ml"})
	wantIDs(t, "a namespace that the caller does not have", got)
	got, _ = list("admin", &dtaskv1.ListDeadLettersRequest{Namespace: "default"})
	wantIDs(t, "default", got, ids[4])
	got, _ = list("admin", &dtaskv1.ListDeadLettersRequest{Job: formatJobID(ids[4]), Namespace: "ml"})
	wantIDs(t, "a job of another namespace", got)
}

// The leader may have archived the job before the caller names it.
func TestDeadLettersOfAnArchivedJobOfAnotherNamespaceAreNotFound(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, false, nil)
	r := setupIdentities(t, change)
	id := r.submitAs(t, "ml", "k", "", task("a"))
	if _, err := r.jobs.Cancel(as(t.Context(), "ml"), &dtaskv1.CancelRequest{Job: formatJobID(id)}); err != nil {
		t.Fatal(err)
	}
	r.leader.op(t, &fsm.Archive{Items: []fsm.JobID{id}})
	for _, d := range methodsOf(t) {
		if !namesJob(d) || d.Name() == "Submit" {
			continue
		}
		foreign, unknown := r.invoke(as(t.Context(), "submitter"), d, id), r.invoke(as(t.Context(), "submitter"), d, id+1)
		if foreign == nil || foreign.Error() != strings.ReplaceAll(unknown.Error(), formatJobID(id+1), formatJobID(id)) {
			t.Errorf("%s: got %v, want the error for an unknown job: %v", d.Name(), foreign, unknown)
		}
	}
}

func TestAJobBelongsToTheIdentityThatSubmitsIt(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	many := make(map[string]string)
	for i := range 64 {
		many[fmt.Sprint("l", i)] = "x"
	}
	for i, c := range []struct {
		caller, owner string
		labels        map[string]string
		want, label   string // label owner
	}{
		{"submitter", "", nil, "ci", ""},
		{"submitter", "ada", nil, "ci", "ada"},
		{"submitter", "ada", map[string]string{"owner": "bob"}, "ci", "bob"},
		{"submitter", "ci", nil, "ci", ""},
		{"submitter", "ada", many, "ci", ""},
		{"socket", "ada", nil, "ada", ""},
	} {
		h := header("x")
		h.Owner, h.Labels = c.owner, c.labels
		stored, err := r.send(as(t.Context(), c.caller), request(fmt.Sprint("k", i), h, task("a")))
		if err != nil {
			t.Fatal(err)
		}
		job, err := r.jobs.GetJob(as(t.Context(), "admin"), &dtaskv1.GetJobRequest{Id: stored.GetId()})
		if err != nil || job.GetOwner() != c.want || job.GetLabels()["owner"] != c.label || len(job.GetLabels()) > 64 {
			t.Errorf("%s submits for %q: got owner %q and label %q, %v", c.caller, c.owner, job.GetOwner(), job.GetLabels()["owner"], err)
		}
	}
}

// A payload is the input of a command, which may run with the rights of the job's owner.
func TestOnlyTheOwnerOfAJobAndAdminsChangeItsPayloads(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	id := formatJobID(r.submitAs(t, "submitter", "k", "etl", task("a"))) // of ci
	for i, c := range []struct {
		caller string
		code   codes.Code
	}{{"both", codes.PermissionDenied}, {"all", codes.PermissionDenied}, {"operator", codes.PermissionDenied}, {"submitter", codes.OK}, {"admin", codes.OK}, {"socket", codes.OK}} {
		req := &dtaskv1.UpdateRequest{Job: id, Task: "a", Payload: []byte("input"), IdempotencyKey: fmt.Sprint("u", i)}
		if _, err := r.jobs.Update(as(t.Context(), c.caller), req); status.Code(err) != c.code {
			t.Errorf("%s: got %v, want %s", c.caller, err, c.code)
		}
		req = &dtaskv1.UpdateRequest{Job: id, Task: "a", Priority: dtaskv1.Priority_PRIORITY_HIGH, IdempotencyKey: fmt.Sprint("p", i)}
		if _, err := r.jobs.Update(as(t.Context(), c.caller), req); err != nil {
			t.Errorf("%s changes the priority: %v", c.caller, err)
		}
	}
}

// Replicas that were not upgraded yet would show the job to everyone.
func TestANamespaceRequiresItsFeatureLevel(t *testing.T) {
	t.Parallel()
	r := setup(t, withIdentities)
	h := header("x")
	h.Namespace = "etl"
	_, err := r.send(as(t.Context(), "admin"), request("k", h, task("a")))
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if !strings.Contains(err.Error(), "namespaces require 2") {
		t.Errorf("got %v", err)
	}
	r.submitAs(t, "admin", "plain", "default", task("a"))
	if got := r.leader.last.Key; got != "plain" || strings.Contains(string(r.leader.last.Header), "default") {
		t.Errorf("a job of the default namespace: got key %q and header %q", got, r.leader.last.Header)
	}
	r.raise(t)
	h.Namespace = "etl"
	if _, err := r.send(as(t.Context(), "admin"), request("k", h, task("a"))); err != nil {
		t.Error(err)
	}
}

// One team must not use up the rate of another one whose owner has the same name.
func TestTheRateOfAnOwnerIsItsOwnInEachNamespace(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t, func(cfg *Config) { cfg.SubmitRate, cfg.SubmitBurst = 0.001, 1 })
	r.submitAs(t, "submitter", "k", "", task("a"))
	r.submitAs(t, "ml", "k", "", task("a")) // its identity is named ci, too
	_, err := r.send(as(t.Context(), "submitter"), request("l", header("x"), task("a")))
	wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
}

func TestOnlyWorkersThatServeANamespaceOfTheCallerAreListed(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	for i, namespaces := range [][]string{nil, {"ml"}, {"etl", "ml"}, {"default"}} {
		op := &fsm.RegisterWorker{ID: fsm.WorkerID(i + 1), Name: fmt.Sprint("w", i+1), Incarnation: testInstance, Slots: 1, Version: "v", Address: "h"}
		for _, n := range namespaces {
			op.Labels = append(op.Labels, fsm.Label{Key: fsm.NamespaceLabel, Value: n})
		}
		r.leader.op(t, op)
	}
	for caller, want := range map[string][]string{"reader": {"w1", "w3"}, "ml": {"w1", "w2", "w3"}, "default": {"w1", "w3", "w4"}, "admin": {"w1", "w2", "w3", "w4"}} {
		var got []string
		req := &dtaskv1.ListWorkersRequest{Limit: 1}
		for {
			resp, err := r.admin.ListWorkers(as(t.Context(), caller), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range resp.GetWorkers() {
				got = append(got, w.GetName())
				if len(w.GetLabels()) != 0 {
					t.Errorf("%s shows the labels %v", w.GetName(), w.GetLabels())
				}
			}
			if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", caller, got, want)
		}
	}
	resp, err := r.admin.ListWorkers(as(t.Context(), "reader"), &dtaskv1.ListWorkersRequest{Name: "w2"})
	if err != nil || len(resp.GetWorkers()) != 0 {
		t.Errorf("by name: got %v, %v", resp.GetWorkers(), err)
	}
	id := r.submitAs(t, "admin", "k", "web", task("a"))
	r.leader.op(t, &fsm.MarkWorkerDown{ID: 1, Reason: "gone"})
	if got := r.reason(t, id); got != "no worker that is up serves the namespace web" {
		t.Errorf("got reason %q", got)
	}
}

// An address leads to a machine, and the reason for a drain may name others. A submitter
// needs the names of secrets for job files.
func TestWhatAListShowsOfAWorkerDependsOnTheRole(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	r.leader.op(t, &fsm.RegisterWorker{
		ID: 1, Name: "w1", Incarnation: testInstance, Slots: 1, Version: "v", Address: "host7",
		Labels: []fsm.Label{{Key: fsm.SecretLabel, Value: "db"}, {Key: "zone", Value: "a"}},
	})
	r.leader.op(t, &fsm.DrainWorker{ID: 1, Until: 1, Reason: "bob's disk"})
	for caller, want := range map[string][]string{
		"reader": {"", "", ""}, "submitter": {"", "", "db"}, "all": {"", "", "db"}, "operator": {"host7", "bob's disk", "db"}, "admin": {"host7", "bob's disk", "db"},
	} {
		resp, err := r.admin.ListWorkers(as(t.Context(), caller), &dtaskv1.ListWorkersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		w := resp.GetWorkers()[0]
		if got := []string{w.GetAddress(), w.GetDrainReason(), strings.Join(w.GetSecrets(), ",")}; !slices.Equal(got, want) {
			t.Errorf("%s sees %q, want %q", caller, got, want)
		}
		if w.GetLabels()["zone"] != "a" || w.GetState() != stateDrained || w.GetVersion() != "v" {
			t.Errorf("%s sees %v", caller, w)
		}
	}
}

// reason returns why the first task of a job is pending.
func (r *replica) reason(t *testing.T, id fsm.JobID) string {
	t.Helper()
	stream, err := r.jobs.ListTasks(as(t.Context(), "admin"), &dtaskv1.ListTasksRequest{Job: formatJobID(id)})
	if err != nil {
		t.Fatal(err)
	}
	page, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return page.GetTasks()[0].GetPendingReason()
}

// A method that may show or change jobs says who checks that the caller may know of them.
func TestEveryMethodAboutJobsChecksThem(t *testing.T) {
	t.Parallel()
	for name, m := range methods {
		if scoped := designedScoped(t, name); scoped != (m.rows != rowsNone) || m.rows == 0 {
			t.Errorf("%s: scoped = %v, rows = %d", name, scoped, m.rows)
		}
	}
}

// designedScoped reports whether a method does only what concerns the caller's namespaces.
func designedScoped(t *testing.T, name string) bool {
	t.Helper()
	for _, d := range methodsOf(t) {
		if "/"+string(d.Parent().FullName())+"/"+string(d.Name()) == name {
			return designedRight(t, d, slices.Index(rightsColumns, "submitter")) == "n"
		}
	}
	t.Fatalf("unknown method %s", name)
	return false
}
