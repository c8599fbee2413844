package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/internal/audit"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// memAudit is an audit log in memory.
type memAudit struct {
	mu    sync.Mutex // guards what follows
	list  []audit.Record
	full  bool // changes are refused
	reads bool
}

func (m *memAudit) Record(r audit.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, r)
}

func (m *memAudit) Reads() bool { return m.reads }

func (m *memAudit) Admit() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full {
		return errors.New("the audit log can't be written")
	}
	return nil
}

// take returns the lines since the last call, without what is of no interest.
func (m *memAudit) take() (list []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.list {
		list = append(list, strings.TrimRight(fmt.Sprintf("%s %s %s [%s] [%s] %s", r.Who, audit.ShortMethod(r.Method), r.Decision, r.NS, r.Object, r.Reason), " "))
	}
	m.list = nil
	return list
}

func setupAudit(t *testing.T) (*replica, *memAudit) {
	t.Helper()
	log := new(memAudit)
	r := setupIdentities(t, func(cfg *Config) { cfg.Audit, cfg.LeaderWait = log, 0 })
	return r, log
}

func wantLines(t *testing.T, what string, log *memAudit, want ...string) {
	t.Helper()
	if got := log.take(); !slices.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestChangesAreRecordedWithTheirCallerNamespaceAndObject(t *testing.T) {
	t.Parallel()
	r, log := setupAudit(t)
	id := r.submitAs(t, "submitter", "a", "etl", task("a"))
	job := fmt.Sprint(id)
	wantLines(t, "submit", log, "ci Submit allowed [etl] [job "+job+"]")
	r.worker(t)
	for what, call := range map[string]func() error{
		"ci Cancel allowed [etl] [job " + job + "/a]": func() error {
			_, err := r.jobs.Cancel(as(t.Context(), "submitter"), &dtaskv1.CancelRequest{Job: job, Task: "a"})
			return err
		},
		"operator DrainWorker allowed [] [w1]": func() error {
			_, err := r.admin.DrainWorker(as(t.Context(), "operator"), &dtaskv1.DrainWorkerRequest{Name: "w1"})
			return err
		},
		"root RevokeToken failed [] [17] Unimplemented": func() error {
			_, err := dtaskv1.NewAuthServiceClient(r.conn).RevokeToken(as(t.Context(), "admin"), &dtaskv1.RevokeTokenRequest{Id: 17})
			if err == nil {
				return errors.New("it is implemented")
			}
			return nil
		},
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		wantLines(t, what, log, what)
	}
	if _, err := r.jobs.Cancel(as(t.Context(), "submitter"), &dtaskv1.CancelRequest{Job: "999"}); err == nil {
		t.Error("an unknown job was cancelled")
	}
	wantLines(t, "a change that fails", log, "ci Cancel failed [] [job 999] ERROR_REASON_NOT_FOUND")
}

func TestABatchOfAThousandJobsIsOneLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // results that take a second have several lines
		r, log := setupAudit(t)
		parts := make([]*dtaskv1.JobPart, maxParts)
		for i := range parts {
			h := header("batch")
			h.Namespace = "etl"
			parts[i] = request(fmt.Sprintf("key %d", i), h, task("a"))
		}
		parts[10] = request("bad", parts[10].GetHeader(), task("a"), task("a"))
		parts[20].Header.Namespace = "ml" // which the caller does not have
		results, err := r.exchange(as(t.Context(), "submitter"), numbered(1, parts...))
		if err != nil || len(results) != maxParts {
			t.Fatalf("%d results, %v", len(results), err)
		}
		got := log.take()
		if len(got) != 2 || !strings.HasPrefix(got[0], "ci Submit denied [] [] ") || !strings.HasPrefix(got[1], "ci Submit allowed [etl,ml] [998 jobs, ") ||
			!strings.HasSuffix(got[1], "] 1 failed: ERROR_REASON_INVALID") {
			t.Errorf("got\n%s", strings.Join(got, "\n"))
		}
	})
}

func TestDenialsAreRecordedForEveryMethod(t *testing.T) {
	t.Parallel()
	r, log := setupAudit(t)
	for _, d := range methodsOf(t) {
		method := "/" + string(d.Parent().FullName()) + "/" + string(d.Name())
		for _, who := range []string{"nobody", "metrics"} {
			if auth.Rights(map[string]auth.Role{"nobody": auth.Anonymous, "metrics": auth.Scraper}[who], method) != auth.None {
				continue
			}
			if err := r.invoke(as(t.Context(), who), d, 1); err == nil {
				t.Errorf("%s: %s is allowed", method, who)
			}
			got := log.take()
			if len(got) != 1 || !strings.Contains(got[0], string(d.Name())+" denied") || strings.HasPrefix(got[0], "prometheus") != (who == "metrics") {
				t.Errorf("%s: %s: got %q", method, who, got)
			}
		}
	}
}

func TestReadsAreRecordedOnRequestOnly(t *testing.T) {
	t.Parallel()
	r, log := setupAudit(t)
	id := fmt.Sprint(r.submitAs(t, "submitter", "a", "etl", task("a")))
	log.take()
	read := func() {
		t.Helper()
		if _, err := r.jobs.GetJob(as(t.Context(), "reader"), &dtaskv1.GetJobRequest{Id: id}); err != nil {
			t.Error(err)
		}
	}
	read()
	wantLines(t, "without --audit-reads", log)
	log.reads = true
	read()
	wantLines(t, "with --audit-reads", log, "reader GetJob allowed [etl] [job "+id+"]")
	log.reads = false
	_, err := dtaskv1.NewAuthServiceClient(r.conn).ListTokens(as(t.Context(), "admin"), &dtaskv1.ListTokensRequest{})
	wantLines(t, fmt.Sprintf("who has access: %v", err), log, "root ListTokens failed [] [] Unimplemented")
	_, err = dtaskv1.NewClusterServiceClient(r.conn).Status(as(t.Context(), "replica"), &dtaskv1.StatusRequest{})
	wantLines(t, fmt.Sprintf("a replica reads: %v", err), log)
}

func TestChangesThatCannotBeRecordedAreRefusedAndCancelsContinue(t *testing.T) {
	t.Parallel()
	r, log := setupAudit(t)
	id := fmt.Sprint(r.submitAs(t, "submitter", "a", "etl", task("a")))
	r.worker(t)
	log.take()
	log.full = true
	_, err := r.admin.DrainWorker(as(t.Context(), "operator"), &dtaskv1.DrainWorkerRequest{Name: "w1"})
	detail := wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
	if detail.GetRetryAfterMs() < 1000 {
		t.Errorf("the caller repeats it after %d ms", detail.GetRetryAfterMs())
	}
	wantLines(t, "a refused change", log)
	if _, err := r.jobs.GetJob(as(t.Context(), "reader"), &dtaskv1.GetJobRequest{Id: id}); err != nil {
		t.Errorf("reading: %v", err)
	}
	if _, err := r.jobs.Cancel(as(t.Context(), "submitter"), &dtaskv1.CancelRequest{Job: id}); err != nil {
		t.Errorf("cancelling: %v", err)
	}
	wantLines(t, "a cancel", log, "ci Cancel allowed [etl] [job "+id+"]")
}

// A change that may have happened must not look like one that failed.
func TestAChangeWithAnUnknownOutcomeIsRecordedAsAllowed(t *testing.T) {
	t.Parallel()
	r, log := setupAudit(t)
	r.worker(t)
	r.leader.fail = sequencer.ErrOutcomeUnknown
	_, err := r.admin.DrainWorker(as(t.Context(), "operator"), &dtaskv1.DrainWorkerRequest{Name: "w1"})
	wantError(t, err, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN)
	wantLines(t, "a call", log, "operator DrainWorker allowed [] [w1] ERROR_REASON_OUTCOME_UNKNOWN")
	h := header("a")
	h.Namespace = "etl"
	if _, err := r.send(as(t.Context(), "submitter"), request("a", h, task("a"))); err == nil {
		t.Error("a job was stored")
	}
	wantLines(t, "a job", log, "ci Submit allowed [etl] [] 1 unknown: ERROR_REASON_OUTCOME_UNKNOWN")
}

// A caller that is about to lose its access must not be able to hide its last change.
func TestAChangeWhoseCallerLosesAccessIsRecordedAsAllowed(t *testing.T) {
	t.Parallel()
	log := new(memAudit)
	r := build(t, func(cfg *Config) {
		cfg.Audit = log
		cfg.Classify = func(err error) *Error {
			if errors.Is(err, errRevoked) {
				return &Error{Kind: KindUnauthenticated, Message: err.Error()}
			}
			return nil
		}
	})
	call := auth.NewContext(t.Context(), identities["admin"])
	access, revoke := context.WithCancelCause(call)
	defer revoke(nil)
	info := &grpc.UnaryServerInfo{FullMethod: dtaskv1.AuthService_RevokeToken_FullMethodName}
	_, err := r.unary(auth.WithAccess(call, access), &dtaskv1.RevokeTokenRequest{Id: 17}, info, func(ctx context.Context, _ any) (any, error) {
		revoke(errRevoked) // after the change was proposed
		<-ctx.Done()
		return nil, ctx.Err()
	})
	wantRevoked(t, err)
	wantLines(t, "a call", log, "root RevokeToken allowed [] [17] "+errRevoked.Error())
}

// A restore tells by the number whether a backup has the worker before or the one after.
func TestTheIdentityThatAJoinMadeIsRecorded(t *testing.T) {
	t.Parallel()
	r, log := setupAudit(t)
	info := &grpc.UnaryServerInfo{FullMethod: dtaskv1.AuthService_Join_FullMethodName}
	_, err := r.unary(t.Context(), &dtaskv1.JoinRequest{Purpose: "worker", Name: "w1"}, info, func(context.Context, any) (any, error) {
		return &dtaskv1.JoinResponse{Identity: &dtaskv1.Identity{Id: 7}}, nil
	})
	log.mu.Lock()
	defer log.mu.Unlock()
	if err != nil || len(log.list) != 1 || log.list[0].Made != 7 {
		t.Errorf("got %+v, %v", log.list, err)
	}
}

// Who takes the place of another one, and how a CA was replaced, is part of what happened.
func TestReplacementsAreRecordedAsSuch(t *testing.T) {
	t.Parallel()
	r, log := setupAudit(t)
	service := dtaskv1.NewAuthServiceClient(r.conn)
	for want, call := range map[string]func() error{
		" Join failed [] [worker w1, replacing the one before, join token 5] Unimplemented": func() error {
			_, err := service.Join(t.Context(), &dtaskv1.JoinRequest{Purpose: "worker", Name: "w1", Replace: true, JoinToken: 5})
			return err
		},
		" Join failed [] [coordinator, replacing n2, join token 6] Unimplemented": func() error {
			_, err := service.Join(t.Context(), &dtaskv1.JoinRequest{Purpose: "coordinator", ReplaceServer: "n2", JoinToken: 6})
			return err
		},
		"root RotateCA failed [] [finish false, compromised true] Unimplemented": func() error {
			_, err := service.RotateCA(as(t.Context(), "admin"), &dtaskv1.RotateCARequest{Compromised: true})
			return err
		},
	} {
		if err := call(); err == nil {
			t.Errorf("%s: it is implemented", want)
		}
		wantLines(t, want, log, want)
	}
}

// results is a stream that keeps nothing.
type results struct {
	grpc.ServerStream

	ctx context.Context
}

func (r results) Context() context.Context { return r.ctx }
func (results) RecvMsg(any) error          { return nil }
func (results) SendMsg(any) error          { return nil }

// A client that always has submissions in flight is recorded nevertheless.
func TestSubmissionsWithoutAPauseHaveALineEachSecond(t *testing.T) {
	t.Parallel()
	log := new(memAudit)
	a := (&Server{cfg: Config{Audit: log}}).auditSubmissions(results{ctx: t.Context()})
	if err := a.RecvMsg(numbered(1, request("a", header("a")), request("b", header("b")), request("c", header("c")))); err != nil {
		t.Fatal(err)
	}
	stored := func(id string) {
		t.Helper()
		if err := a.SendMsg(&dtaskv1.SubmitResponse{Results: []*dtaskv1.SubmitResult{{Stored: &dtaskv1.StoredJob{Id: id}}}}); err != nil {
			t.Fatal(err)
		}
	}
	stored("7")
	wantLines(t, "within the second", log)
	a.since = a.since.Add(-maxAuditDelay)
	stored("8")
	wantLines(t, "after a second", log, " Submit allowed [default] [2 jobs, 7 to 8]")
	a.end()
	wantLines(t, "after the end", log, " Submit allowed [default] [] 1 unknown: ERROR_REASON_OUTCOME_UNKNOWN")
}

// A client that hangs up before it has the results can't submit jobs without a line. An
// upload that was cut off leaves nothing.
func TestSubmissionsOfAClientThatHangsUpAreRecorded(t *testing.T) {
	t.Parallel()
	log := new(memAudit)
	a := (&Server{cfg: Config{Audit: log}}).auditSubmissions(results{ctx: t.Context()})
	first, more, last := request("a", header("a")), request("b", header("b")), request("c", header("c"))
	more.More = true
	if err := a.RecvMsg(numbered(1, first, more, last)); err != nil {
		t.Fatal(err)
	}
	a.end()
	wantLines(t, "without a result", log, " Submit allowed [default] [] 2 unknown: ERROR_REASON_OUTCOME_UNKNOWN")
}

// Calls that another replica must answer are recorded there.
func TestCallsThatAreReferredToTheLeaderAreNotRecorded(t *testing.T) {
	t.Parallel()
	r, log := setupAudit(t)
	r.leading(false)
	_, err := r.admin.DrainWorker(as(t.Context(), "operator"), &dtaskv1.DrainWorkerRequest{Name: "w1"})
	_, submitted := r.send(as(t.Context(), "submitter"), request("a", header("a"), task("a")))
	if err == nil || submitted == nil {
		t.Errorf("a follower answers: %v, %v", err, submitted)
	}
	wantLines(t, "a follower", log)
}

// Payloads, environments, idempotency keys and secrets of requests are in no line.
func TestNoSecretIsInALine(t *testing.T) {
	t.Parallel()
	r, log := setupAudit(t)
	const canary = "canary-4711"
	secret := task("a")
	secret.Body.Payload = []byte(`{"command":["echo","` + canary + `"]}`)
	h := header("a")
	h.Namespace, h.Labels = "etl", map[string]string{"note": canary}
	for _, tasks := range [][]*dtaskv1.TaskSpec{{secret}, {secret, secret}} {
		_, _ = r.send(as(t.Context(), "submitter"), request(canary, h, tasks...))
	}
	_, _ = r.jobs.Update(as(t.Context(), "submitter"), &dtaskv1.UpdateRequest{Job: "1", Task: "a", Payload: []byte(canary), IdempotencyKey: canary})
	authService := dtaskv1.NewAuthServiceClient(r.conn)
	_, _ = authService.Join(t.Context(), &dtaskv1.JoinRequest{JoinToken: 3, Purpose: "worker", Name: "w9", Key: canary, JoinSecret: []byte(canary)})
	_, _ = authService.CreateToken(as(t.Context(), "admin"), &dtaskv1.CreateTokenRequest{Name: "ci", Role: "reader", Key: canary, TokenHash: []byte(canary)})
	lines, err := json.Marshal(log.list)
	if err != nil || len(log.list) < 4 {
		t.Fatalf("%d lines, %v", len(log.list), err)
	}
	if strings.Contains(string(lines), canary) {
		t.Errorf("a secret is in %s", lines)
	}
}

// Two namespaces may have schedules of one name.
func TestChangesOfSchedulesAreRecordedWithTheNamespaceOfTheCaller(t *testing.T) {
	t.Parallel()
	log := new(memAudit)
	r := setupSchedules(t, func(cfg *Config) { cfg.Audit = log })
	r.mustSet(t, "submitter", everyTenMinutes("nightly", ""))
	wantLines(t, "set", log, "ci SetSchedule allowed [etl] [schedule nightly]")
	r.mustSet(t, "admin", everyTenMinutes("nightly", ""))
	wantLines(t, "set by an admin", log, "root SetSchedule allowed [default] [schedule nightly]")
	if _, err := r.schedules.DeleteSchedule(as(t.Context(), "submitter"), &dtaskv1.DeleteScheduleRequest{Name: "nightly"}); err != nil {
		t.Fatal(err)
	}
	wantLines(t, "delete", log, "ci DeleteSchedule allowed [etl] [schedule nightly]")
	if _, err := r.schedules.PauseSchedule(as(t.Context(), "admin"), &dtaskv1.PauseScheduleRequest{Namespace: "default", Name: "nightly"}); err != nil {
		t.Fatal(err)
	}
	wantLines(t, "pause", log, "root PauseSchedule allowed [default] [schedule nightly]")
}
