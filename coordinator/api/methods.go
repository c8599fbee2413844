package api

import (
	"context"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// access is who may answer a call, and how fresh the state is that it reads.
type access uint8

const (
	// accessReplica: any replica answers from its own state.
	accessReplica access = iota + 1
	// accessRead: the request's consistency decides.
	accessRead
	// accessFollower: as accessRead, and a replica that does not lead also answers a
	// linearizable read, with an index that it gets from the leader. For reads that take long.
	accessFollower
	// accessLeader: the leader answers after a quorum has confirmed it, so that task
	// ids are looked up in a state that is not stale.
	accessLeader
	// accessPropose: the leader answers. Its sequencer decides by its own view, which
	// a deposed leader can't commit.
	accessPropose
)

// repetition is the effect of repeating a call whose outcome is unknown.
type repetition uint8

const (
	// repeatRead: it reads again.
	repeatRead repetition = iota + 1
	// repeatHarmless: no further effect.
	repeatHarmless
	// repeatKeyed: the idempotency key identifies it, and it is answered as before.
	repeatKeyed
	// repeatReplaces: it replaces the effect of the first.
	repeatReplaces
)

// rows is who checks that the caller may know of the jobs or schedules that a call is about. See
// caller.go.
type rows uint8

const (
	// rowsNone: it is about no job.
	rowsNone rows = iota + 1
	// rowsJob: the request names one job, which admit checks.
	rowsJob
	// rowsEach: the handler checks each job that it finds, or that the request has.
	rowsEach
)

// method is what interceptors and clients rely on about an RPC.
type method struct {
	access access
	repeat repetition
	// waits: a call that arrives while no leader is known waits for one; see
	// awaitLeader. Calls that ask about the present state of the cluster must not.
	waits bool
	rows  rows
}

// methods has a row for every method that this package serves.
var methods = map[string]method{
	dtaskv1.JobService_Submit_FullMethodName:           {accessPropose, repeatKeyed, true, rowsEach},
	dtaskv1.JobService_GetJob_FullMethodName:           {accessRead, repeatRead, true, rowsJob},
	dtaskv1.JobService_GetJobSpec_FullMethodName:       {accessRead, repeatRead, true, rowsJob},
	dtaskv1.JobService_ListJobs_FullMethodName:         {accessRead, repeatRead, true, rowsEach},
	dtaskv1.JobService_ListTasks_FullMethodName:        {accessRead, repeatRead, true, rowsJob},
	dtaskv1.JobService_WatchJob_FullMethodName:         {accessRead, repeatRead, true, rowsEach},
	dtaskv1.JobService_WaitJobs_FullMethodName:         {accessRead, repeatRead, true, rowsEach},
	dtaskv1.JobService_Cancel_FullMethodName:           {accessPropose, repeatHarmless, true, rowsJob},
	dtaskv1.JobService_Update_FullMethodName:           {accessLeader, repeatKeyed, true, rowsEach},
	dtaskv1.JobService_GetResult_FullMethodName:        {accessRead, repeatRead, true, rowsJob},
	dtaskv1.JobService_Retry_FullMethodName:            {accessLeader, repeatKeyed, true, rowsEach},
	dtaskv1.JobService_ListDeadLetters_FullMethodName:  {accessRead, repeatRead, true, rowsEach},
	dtaskv1.JobService_PurgeDeadLetters_FullMethodName: {accessLeader, repeatKeyed, true, rowsEach},
	dtaskv1.JobService_Logs_FullMethodName:             {accessLeader, repeatRead, true, rowsJob},
	dtaskv1.JobService_WatchEvents_FullMethodName:      {accessReplica, repeatRead, false, rowsEach},
	dtaskv1.JobService_Explain_FullMethodName:          {accessLeader, repeatRead, true, rowsJob},
	dtaskv1.JobService_Plan_FullMethodName:             {accessFollower, repeatRead, true, rowsEach},

	dtaskv1.ScheduleService_SetSchedule_FullMethodName:      {accessPropose, repeatReplaces, true, rowsEach},
	dtaskv1.ScheduleService_ListSchedules_FullMethodName:    {accessRead, repeatRead, true, rowsEach},
	dtaskv1.ScheduleService_GetSchedule_FullMethodName:      {accessRead, repeatRead, true, rowsEach},
	dtaskv1.ScheduleService_PauseSchedule_FullMethodName:    {accessLeader, repeatHarmless, true, rowsEach},
	dtaskv1.ScheduleService_ResumeSchedule_FullMethodName:   {accessLeader, repeatHarmless, true, rowsEach},
	dtaskv1.ScheduleService_DeleteSchedule_FullMethodName:   {accessLeader, repeatHarmless, true, rowsEach},
	dtaskv1.ScheduleService_RunSchedule_FullMethodName:      {accessLeader, repeatKeyed, true, rowsEach},
	dtaskv1.ScheduleService_BackfillSchedule_FullMethodName: {accessLeader, repeatKeyed, true, rowsEach},

	dtaskv1.LimitService_SetLimit_FullMethodName:    {accessPropose, repeatReplaces, true, rowsNone},
	dtaskv1.LimitService_ListLimits_FullMethodName:  {accessRead, repeatRead, true, rowsEach},
	dtaskv1.LimitService_DeleteLimit_FullMethodName: {accessPropose, repeatHarmless, true, rowsNone},

	dtaskv1.QueueService_SetQueue_FullMethodName:    {accessPropose, repeatReplaces, true, rowsNone},
	dtaskv1.QueueService_ListQueues_FullMethodName:  {accessRead, repeatRead, true, rowsNone},
	dtaskv1.QueueService_PauseQueue_FullMethodName:  {accessPropose, repeatHarmless, true, rowsNone},
	dtaskv1.QueueService_ResumeQueue_FullMethodName: {accessPropose, repeatHarmless, true, rowsNone},
	dtaskv1.QueueService_DeleteQueue_FullMethodName: {accessPropose, repeatHarmless, true, rowsNone},

	dtaskv1.AdminService_ListWorkers_FullMethodName:   {accessRead, repeatRead, false, rowsEach},
	dtaskv1.AdminService_DrainWorker_FullMethodName:   {accessPropose, repeatReplaces, false, rowsNone},
	dtaskv1.AdminService_UndrainWorker_FullMethodName: {accessPropose, repeatHarmless, false, rowsNone},
	dtaskv1.AdminService_Stats_FullMethodName:         {accessReplica, repeatRead, false, rowsNone},
	dtaskv1.AdminService_History_FullMethodName:       {accessReplica, repeatRead, false, rowsNone},
	dtaskv1.AdminService_Backup_FullMethodName:        {accessReplica, repeatRead, false, rowsNone},
	dtaskv1.AdminService_Barrier_FullMethodName:       {accessLeader, repeatRead, false, rowsNone},
	dtaskv1.AdminService_DiskUsage_FullMethodName:     {accessReplica, repeatRead, false, rowsNone},
	dtaskv1.AdminService_Load_FullMethodName:          {accessPropose, repeatRead, false, rowsNone},
	dtaskv1.AdminService_Debug_FullMethodName:         {accessReplica, repeatRead, false, rowsNone},

	dtaskv1.AdminService_SetBackupSchedule_FullMethodName:    {accessPropose, repeatReplaces, false, rowsNone},
	dtaskv1.AdminService_DeleteBackupSchedule_FullMethodName: {accessPropose, repeatHarmless, false, rowsNone},
	dtaskv1.AdminService_BackupStatus_FullMethodName:         {accessRead, repeatRead, false, rowsNone},
	dtaskv1.AdminService_WriteBackup_FullMethodName:          {accessReplica, repeatHarmless, false, rowsNone},
}

// Limits of fields that mean the same in every request.
const (
	defaultLimit = 100    // of a listing
	maxLimit     = 1000   // of a listing
	maxReason    = 256    // bytes
	maxNamed     = 10_000 // tasks
)

// admit checks what the table and the common fields demand of a request before the
// handler sees it.
func (s *Server) admit(ctx context.Context, m method, req any) error {
	if err := checkFields(m, req); err != nil {
		return err
	}
	if err := s.admitAccess(ctx, m, req); err != nil {
		return err
	}
	if m.rows == rowsJob {
		return s.admitJob(ctx, m, req)
	}
	return nil
}

// admitAccess makes the state as fresh as the method and the request demand.
func (s *Server) admitAccess(ctx context.Context, m method, req any) error {
	switch m.access {
	case accessRead:
		if r, ok := req.(interface{ GetConsistency() dtaskv1.Consistency }); ok {
			return allow(ctx, r.GetConsistency(), s.Confirm)
		}
		return s.Confirm(ctx)
	case accessFollower:
		if r, ok := req.(interface{ GetConsistency() dtaskv1.Consistency }); ok {
			return allow(ctx, r.GetConsistency(), s.confirmAnywhere)
		}
		return s.confirmAnywhere(ctx)
	case accessLeader:
		return s.Confirm(ctx)
	case accessPropose, accessReplica:
	}
	return nil
}

// checkFields checks the fields that have one meaning in all requests.
func checkFields(m method, req any) error {
	if r, ok := req.(interface{ GetLimit() uint32 }); ok && r.GetLimit() > maxLimit {
		return invalid("invalid limit %d: must be 1 to %d, or 0 for %d", r.GetLimit(), maxLimit, defaultLimit)
	}
	if r, ok := req.(interface{ GetReason() string }); ok && len(r.GetReason()) > maxReason {
		return invalid("invalid reason of %d bytes: must be at most %d", len(r.GetReason()), maxReason)
	}
	if r, ok := req.(interface{ GetTasks() []string }); ok && len(r.GetTasks()) > maxNamed {
		return invalid("%d tasks are too many: name at most %d, or none for all", len(r.GetTasks()), maxNamed)
	}
	if r, ok := req.(interface{ GetIdempotencyKey() string }); ok && m.repeat == repeatKeyed {
		if n := len(r.GetIdempotencyKey()); n < 1 || n > maxKey {
			return invalid("invalid idempotency_key of %d bytes: must be 1 to %d", n, maxKey)
		}
		if fsm.IsScoped(r.GetIdempotencyKey()) {
			return invalid("invalid idempotency_key: must not begin with a NUL byte")
		}
	}
	return nil
}

// admittedStream admits the request of a stream of responses when the handler
// receives it.
type admittedStream struct {
	grpc.ServerStream

	server *Server
	method method
}

// RecvMsg implements grpc.ServerStream.
func (s *admittedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.server.admit(s.Context(), s.method, m)
}
