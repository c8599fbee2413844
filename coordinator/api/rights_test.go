package api

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// rightsColumns are the identities of rightsRows; the first one has no credentials.
var rightsColumns = []string{"anonymous", "reader", "submitter", "operator", "admin", "worker", "replica", "metrics"}

// rightsRows is the table of rights as it was designed, written down a second time: + may
// call the method, n may call it for jobs of its namespaces, . may not.
var rightsRows = map[string]string{
	"Health.Check":      "+ + + + + + + +",
	"Health.Watch List": ". + + + + + + +",

	"JobService.GetJob GetJobSpec ListJobs ListTasks WatchJob WaitJobs GetResult ListDeadLetters Logs WatchEvents Explain Plan": ". n n + + . . .",
	"JobService.Submit Cancel Update Retry PurgeDeadLetters":                                                                    ". . n + + . . .",

	"ScheduleService.ListSchedules GetSchedule":                                                            ". n n + + . . .",
	"ScheduleService.SetSchedule PauseSchedule ResumeSchedule DeleteSchedule RunSchedule BackfillSchedule": ". . n + + . . .",

	"QueueService.ListQueues":                                  ". + + + + . . .",
	"QueueService.SetQueue PauseQueue ResumeQueue DeleteQueue": ". . . + + . . .",

	"LimitService.ListLimits":           ". n n + + . . .",
	"LimitService.SetLimit DeleteLimit": ". . . + + . . .",

	"AdminService.ListWorkers":               ". n n + + . . .",
	"AdminService.DrainWorker UndrainWorker": ". . . + + . . .",
	"AdminService.Stats Load":                ". + + + + . + .",
	"AdminService.History Barrier":           ". . . . . . + .",
	"AdminService.Backup Debug":              ". . . . + . . .",
	"AdminService.DiskUsage":                 ". . . + + . . .",
	"AdminService.BackupStatus":              ". . . + + . . .",
	"AdminService.WriteBackup":               ". . . . . . + .",

	"AdminService.SetBackupSchedule DeleteBackupSchedule": ". . . . + . . .",

	"ClusterService.Identify":      ". + + + + + + .",
	"ClusterService.Status":        ". + + + + . + .",
	"ClusterService.AwaitLeader":   ". + + + + + + .",
	"ClusterService.Admit Digests": ". . . . . . + .",
	"ClusterService.AddMember RemoveMember TransferLeadership UpgradeStatus": ". . . + + . . .",
	"ClusterService.FinishUpgrade HoldUpgrade SetClusterName AuditHeads":     ". . . . + . . .",

	"WorkerService.Sessions": ". . . . . + . .",

	"AuthService.Join":   "+ + + + + + + +",
	"AuthService.WhoAmI": ". + + + + + + +",
	"AuthService.CreateToken ListTokens RotateToken RevokeToken CreateJoinToken ListJoinTokens RevokeJoinToken RotateCA": ". . . . + . . .",
	"AuthService.TLSStatus": ". . . + + . . .",
	"AuthService.GetCAKey":  ". . . . . . + .",
	"AuthService.RotateKey": ". . . . . + . .",
}

// designedRight returns the cell of a method and the identity of a column.
func designedRight(t *testing.T, d protoreflect.MethodDescriptor, column int) string {
	t.Helper()
	for names, cells := range rightsRows {
		service, methods, _ := strings.Cut(names, ".")
		if string(d.Parent().Name()) == service && slices.Contains(strings.Fields(methods), string(d.Name())) {
			return strings.Fields(cells)[column]
		}
	}
	t.Fatalf("%s is not in the test's table", d.FullName())
	return ""
}

// methodsOf returns all methods of a server's services.
func methodsOf(t *testing.T) (list []protoreflect.MethodDescriptor) {
	t.Helper()
	for _, file := range []protoreflect.FileDescriptor{
		healthv1.File_grpc_health_v1_health_proto, dtaskv1.File_dtask_v1_jobs_proto, dtaskv1.File_dtask_v1_cluster_proto,
		dtaskv1.File_dtask_v1_worker_proto, dtaskv1.File_dtask_v1_auth_proto, dtaskv1.File_dtask_v1_schedules_proto, dtaskv1.File_dtask_v1_queues_proto, dtaskv1.File_dtask_v1_limits_proto,
	} {
		for i := range file.Services().Len() {
			for k := range file.Services().Get(i).Methods().Len() {
				list = append(list, file.Services().Get(i).Methods().Get(k))
			}
		}
	}
	return list
}

// invoke calls a method about a job, and returns the error that comes instead of its first
// response.
func (r *replica) invoke(ctx context.Context, d protoreflect.MethodDescriptor, id fsm.JobID) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := protoregistry.GlobalTypes.FindMessageByName(d.Input().FullName())
	if err != nil {
		return err
	}
	out, err := protoregistry.GlobalTypes.FindMessageByName(d.Output().FullName())
	if err != nil {
		return err
	}
	stream, err := r.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		"/"+string(d.Parent().FullName())+"/"+string(d.Name()))
	if err != nil {
		return err
	}
	request := in.New().Interface()
	fill(request, id)
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	err = stream.RecvMsg(out.New().Interface())
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// fill completes a request about a job.
func fill(request proto.Message, id fsm.JobID) {
	m := request.ProtoReflect()
	for field, value := range map[protoreflect.Name]string{"job": formatJobID(id), "id": formatJobID(id), "idempotency_key": "key-" + formatJobID(id)} {
		if f := m.Descriptor().Fields().ByName(field); f != nil && f.Kind() == protoreflect.StringKind && !f.IsList() {
			m.Set(f, protoreflect.ValueOfString(value))
		}
	}
	switch q := request.(type) {
	case *dtaskv1.LogsRequest:
		q.Task = "a"
	case *dtaskv1.ExplainRequest:
		q.Task = "a"
	case *dtaskv1.PlanRequest:
		q.Header = &dtaskv1.JobHeader{Name: "x", Priority: dtaskv1.Priority_PRIORITY_NORMAL, OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP, Policies: []*dtaskv1.TaskPolicy{{Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE}}}
		q.Tasks = []*dtaskv1.PlanTask{{Id: "a"}}
	case *dtaskv1.UpdateRequest:
		q.Priority = dtaskv1.Priority_PRIORITY_HIGH
	case *dtaskv1.DrainWorkerRequest:
		q.Name = "w1"
	case *dtaskv1.UndrainWorkerRequest:
		q.Name = "w1"
	case *dtaskv1.WaitJobsRequest:
		q.Jobs = []string{formatJobID(id)}
	}
}

// wantDenied checks that a call is refused by the table of rights.
func wantDenied(t *testing.T, what string, err error, anonymous bool) {
	t.Helper()
	want := codes.PermissionDenied
	if anonymous {
		want = codes.Unauthenticated
	}
	if status.Code(err) != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// namesJob are the methods whose error for a job that the caller must not know of is that
// of an unknown one. The others have tests of their own for each of their jobs or schedules.
func namesJob(d protoreflect.MethodDescriptor) bool {
	m, own := methods["/"+string(d.Parent().FullName())+"/"+string(d.Name())]
	each := []protoreflect.Name{"Submit", "Plan", "ListJobs", "WaitJobs", "ListWorkers", "WatchEvents"}
	return own && m.rows != rowsNone && !slices.Contains(each, d.Name()) && d.Parent().Name() != "ScheduleService" && d.Parent().Name() != "LimitService"
}

// What has no row is refused for all callers, whether it is served or not.
func TestAMethodWithoutARowIsRefused(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	for _, name := range rightsColumns {
		for _, method := range []string{"/dtask.v1.JobService/Nothing", "/x.Service/Method", "/test.Unlisted/Call", "noslash", "/", "//", "/dtask.v1.JobService"} {
			err := r.conn.Invoke(as(t.Context(), name), method, &dtaskv1.GetJobRequest{}, &dtaskv1.Job{})
			want := codes.Unimplemented
			if name == "anonymous" {
				want = codes.Unauthenticated
			}
			if status.Code(err) != want {
				t.Errorf("%s calls %q: got %v, want %v", name, method, err, want)
			}
		}
	}
}

// A caller that is refused learns why, and never has its message decoded.
func TestARefusalNamesWhatTheCallerLacks(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	_, err := r.jobs.ListJobs(t.Context(), &dtaskv1.ListJobsRequest{})
	wantError(t, err, codes.Unauthenticated, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if !strings.Contains(err.Error(), "ListJobs needs credentials") {
		t.Errorf("got %v", err)
	}
	_, err = r.jobs.Cancel(as(t.Context(), "reader"), &dtaskv1.CancelRequest{Job: "1"})
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if !strings.Contains(err.Error(), "reader reader (etl) may not call Cancel, which needs the role admin, operator, submitter") {
		t.Errorf("got %v", err)
	}
}

// A call is authenticated once, and what Authenticate returns reaches the caller.
func TestACallIsAuthenticatedOnce(t *testing.T) {
	t.Parallel()
	calls, expired := 0, false
	r := setup(t, func(cfg *Config) {
		cfg.Authenticate = func(ctx context.Context, method string) (context.Context, *auth.Principal, error) {
			if method != dtaskv1.JobService_ListJobs_FullMethodName {
				t.Errorf("got method %s", method)
			}
			calls++
			if expired {
				return ctx, nil, &Error{Kind: KindUnauthenticated, Message: "the token expired"}
			}
			return ctx, identities["admin"], nil
		}
	})
	if _, err := r.jobs.ListJobs(t.Context(), &dtaskv1.ListJobsRequest{}); err != nil || calls != 1 {
		t.Errorf("got %v after %d calls of Authenticate", err, calls)
	}
	expired = true
	_, err := r.jobs.ListJobs(t.Context(), &dtaskv1.ListJobsRequest{})
	wantError(t, err, codes.Unauthenticated, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if !strings.Contains(err.Error(), "the token expired") {
		t.Errorf("got %v", err)
	}
}

// Metadata is read before a caller is authenticated.
func TestTheMetadataOfACallIsLimited(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	ctx := func(size int) context.Context {
		return metadata.AppendToOutgoingContext(as(t.Context(), "admin"), "x-large", strings.Repeat("x", size))
	}
	if _, err := r.jobs.ListJobs(ctx(maxMetadata/2), &dtaskv1.ListJobsRequest{}); err != nil {
		t.Errorf("got %v", err)
	}
	if _, err := r.jobs.ListJobs(ctx(maxMetadata), &dtaskv1.ListJobsRequest{}); err == nil {
		t.Error("metadata of any size are accepted")
	}
}

// gRPC never ends the context of a call that is refused before it has a handler.
func TestWhatWasBegunForARefusedCallIsAbandoned(t *testing.T) {
	t.Parallel()
	type key struct{}
	abandoned := make(chan any, 10)
	full := false
	r := setup(t, func(cfg *Config) {
		cfg.Authenticate = func(ctx context.Context, _ string) (context.Context, *auth.Principal, error) {
			return context.WithValue(ctx, key{}, "begun"), identities["reader"], nil
		}
		cfg.Abandon = func(ctx context.Context) { abandoned <- ctx.Value(key{}) }
		cfg.Enter = func(ctx context.Context, _ string) (context.Context, error) {
			if full {
				return ctx, &Error{Kind: KindBusy, Message: "full"}
			}
			return ctx, nil
		}
	})
	if _, err := r.jobs.ListJobs(t.Context(), &dtaskv1.ListJobsRequest{}); err != nil || len(abandoned) > 0 {
		t.Errorf("got %v, %d abandoned", err, len(abandoned))
	}
	_, err := r.jobs.Cancel(t.Context(), &dtaskv1.CancelRequest{Job: "1"})
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	full = true
	if _, err := r.jobs.ListJobs(t.Context(), &dtaskv1.ListJobsRequest{}); err == nil {
		t.Error("a call entered a full server")
	}
	for range 2 {
		if got := <-abandoned; got != "begun" {
			t.Errorf("got %v", got)
		}
	}
}

// The rules of both packages must be one: spec must not link package auth.
func TestBothRulesForNamespacesAgree(t *testing.T) {
	t.Parallel()
	if auth.DefaultNamespace != fsm.DefaultNamespace {
		t.Errorf("default namespaces %q and %q", auth.DefaultNamespace, fsm.DefaultNamespace)
	}
	for _, name := range []string{
		"", "a", "default", "etl-2", "-a", "a-", "-", "A", "a.b", "a_b", "é", "*", "a b", "a\x00b", strings.Repeat("a", 63), strings.Repeat("a", 64),
	} {
		if a, b := auth.CheckNamespace(name), spec.CheckNamespace(name); (a == nil) != (b == nil) {
			t.Errorf("%q: auth: %v, spec: %v", name, a, b)
		}
	}
}
