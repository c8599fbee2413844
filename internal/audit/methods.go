package audit

import (
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Class is which calls of a method the log has. It has the denials of all methods.
type Class uint8

// The classes.
const (
	// DenialsOnly: programs call it all the time, or it is the workers' own protocol.
	DenialsOnly Class = iota + 1
	// Read: with --audit-reads.
	Read
	// Always: it reads who has access, or what the cluster is.
	Always
	// Change: it changes something.
	Change
	// UrgentChange is a Change that is not refused while the log can't be written: it
	// ends something, takes access away, or lets a coordinator take part or pass on its
	// leadership.
	UrgentChange
)

// IsChange reports whether the method changes something.
func (c Class) IsChange() bool { return c == Change || c == UrgentChange }

// classes has a row for every method.
var classes = map[string]Class{
	healthv1.Health_Check_FullMethodName: DenialsOnly,
	healthv1.Health_Watch_FullMethodName: DenialsOnly,
	healthv1.Health_List_FullMethodName:  DenialsOnly,

	dtaskv1.JobService_Submit_FullMethodName:           Change,
	dtaskv1.JobService_GetJob_FullMethodName:           Read,
	dtaskv1.JobService_GetJobSpec_FullMethodName:       Read,
	dtaskv1.JobService_ListJobs_FullMethodName:         Read,
	dtaskv1.JobService_ListTasks_FullMethodName:        Read,
	dtaskv1.JobService_WatchJob_FullMethodName:         Read,
	dtaskv1.JobService_WaitJobs_FullMethodName:         Read,
	dtaskv1.JobService_Cancel_FullMethodName:           UrgentChange,
	dtaskv1.JobService_Update_FullMethodName:           Change,
	dtaskv1.JobService_GetResult_FullMethodName:        Read,
	dtaskv1.JobService_Retry_FullMethodName:            Change,
	dtaskv1.JobService_ListDeadLetters_FullMethodName:  Read,
	dtaskv1.JobService_PurgeDeadLetters_FullMethodName: Change,
	dtaskv1.JobService_Logs_FullMethodName:             Read,
	dtaskv1.JobService_WatchEvents_FullMethodName:      Read,
	dtaskv1.JobService_Explain_FullMethodName:          Read,
	dtaskv1.JobService_Plan_FullMethodName:             Read,

	dtaskv1.ScheduleService_SetSchedule_FullMethodName:      Change,
	dtaskv1.ScheduleService_ListSchedules_FullMethodName:    Read,
	dtaskv1.ScheduleService_GetSchedule_FullMethodName:      Read,
	dtaskv1.ScheduleService_PauseSchedule_FullMethodName:    UrgentChange,
	dtaskv1.ScheduleService_ResumeSchedule_FullMethodName:   Change,
	dtaskv1.ScheduleService_DeleteSchedule_FullMethodName:   UrgentChange,
	dtaskv1.ScheduleService_RunSchedule_FullMethodName:      Change,
	dtaskv1.ScheduleService_BackfillSchedule_FullMethodName: Change,

	dtaskv1.LimitService_SetLimit_FullMethodName:    Change,
	dtaskv1.LimitService_ListLimits_FullMethodName:  Read,
	dtaskv1.LimitService_DeleteLimit_FullMethodName: Change,

	dtaskv1.QueueService_SetQueue_FullMethodName:    Change,
	dtaskv1.QueueService_ListQueues_FullMethodName:  Read,
	dtaskv1.QueueService_PauseQueue_FullMethodName:  UrgentChange,
	dtaskv1.QueueService_ResumeQueue_FullMethodName: Change,
	dtaskv1.QueueService_DeleteQueue_FullMethodName: Change,

	dtaskv1.AdminService_ListWorkers_FullMethodName:   Read,
	dtaskv1.AdminService_DrainWorker_FullMethodName:   Change,
	dtaskv1.AdminService_UndrainWorker_FullMethodName: Change,
	dtaskv1.AdminService_Stats_FullMethodName:         Read,
	dtaskv1.AdminService_History_FullMethodName:       DenialsOnly,
	dtaskv1.AdminService_Backup_FullMethodName:        Always, // it has everything
	dtaskv1.AdminService_Barrier_FullMethodName:       DenialsOnly,
	dtaskv1.AdminService_DiskUsage_FullMethodName:     Read,
	dtaskv1.AdminService_Load_FullMethodName:          DenialsOnly, // dtaskctl top asks each second
	dtaskv1.AdminService_Debug_FullMethodName:         Always,      // it has the log

	dtaskv1.AdminService_SetBackupSchedule_FullMethodName:    Change,
	dtaskv1.AdminService_DeleteBackupSchedule_FullMethodName: Change,
	dtaskv1.AdminService_BackupStatus_FullMethodName:         Always,
	dtaskv1.AdminService_WriteBackup_FullMethodName:          Change, // it leaves the cluster

	dtaskv1.ClusterService_Status_FullMethodName:             Always,
	dtaskv1.ClusterService_Identify_FullMethodName:           DenialsOnly,
	dtaskv1.ClusterService_AwaitLeader_FullMethodName:        DenialsOnly,
	dtaskv1.ClusterService_Admit_FullMethodName:              UrgentChange,
	dtaskv1.ClusterService_AddMember_FullMethodName:          Change,
	dtaskv1.ClusterService_RemoveMember_FullMethodName:       Change,
	dtaskv1.ClusterService_TransferLeadership_FullMethodName: UrgentChange,
	dtaskv1.ClusterService_UpgradeStatus_FullMethodName:      Always,
	dtaskv1.ClusterService_FinishUpgrade_FullMethodName:      Change,
	dtaskv1.ClusterService_HoldUpgrade_FullMethodName:        Change,
	dtaskv1.ClusterService_SetClusterName_FullMethodName:     Change,
	dtaskv1.ClusterService_Digests_FullMethodName:            DenialsOnly,
	dtaskv1.ClusterService_AuditHeads_FullMethodName:         Always,

	dtaskv1.WorkerService_Sessions_FullMethodName: DenialsOnly,

	dtaskv1.AuthService_Join_FullMethodName:            Change,
	dtaskv1.AuthService_WhoAmI_FullMethodName:          Always,
	dtaskv1.AuthService_CreateToken_FullMethodName:     Change,
	dtaskv1.AuthService_ListTokens_FullMethodName:      Always,
	dtaskv1.AuthService_RotateToken_FullMethodName:     Change,
	dtaskv1.AuthService_RevokeToken_FullMethodName:     UrgentChange,
	dtaskv1.AuthService_CreateJoinToken_FullMethodName: Change,
	dtaskv1.AuthService_ListJoinTokens_FullMethodName:  Always,
	dtaskv1.AuthService_RevokeJoinToken_FullMethodName: UrgentChange,
	dtaskv1.AuthService_TLSStatus_FullMethodName:       Always,
	dtaskv1.AuthService_RotateCA_FullMethodName:        UrgentChange,
	dtaskv1.AuthService_GetCAKey_FullMethodName:        Always,
	dtaskv1.AuthService_RotateKey_FullMethodName:       Change,
}

// ClassOf returns the class of a method by its full name; DenialsOnly for an unknown one,
// which nobody may call.
func ClassOf(method string) Class {
	if c, ok := classes[method]; ok {
		return c
	}
	return DenialsOnly
}
