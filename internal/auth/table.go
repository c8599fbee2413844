package auth

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Right is what a role may see and change by a method.
type Right uint8

// The rights, ascending.
const (
	None  Right = iota
	Brief       // a short form of the answer, without addresses
	Own         // what belongs to the caller's namespaces
	Full        // everything
)

// row has the right of each role that has one. Replica callers are checked further: see
// coordinator/access.
type row [Replica + 1]Right

// Columns that several methods share.
var (
	everyone   = row{Anonymous: Full, Admin: Full, Operator: Full, Submitter: Full, Reader: Full, Scraper: Full, Worker: Full, Replica: Full}
	known      = row{Admin: Full, Operator: Full, Submitter: Full, Reader: Full, Scraper: Full, Worker: Full, Replica: Full}
	identify   = row{Admin: Full, Operator: Full, Submitter: Brief, Reader: Brief, Worker: Brief, Replica: Full}
	clusterWay = row{Admin: Full, Operator: Full, Submitter: Brief, Reader: Brief, Replica: Full}
	hints      = row{Admin: Full, Operator: Full, Submitter: Full, Reader: Full, Worker: Full, Replica: Full}
	readJobs   = row{Admin: Full, Operator: Full, Submitter: Own, Reader: Own}
	changeJobs = row{Admin: Full, Operator: Full, Submitter: Own}
	// readCluster is for what namespaces share, without data of any.
	readCluster = row{Admin: Full, Operator: Full, Submitter: Full, Reader: Full}
	operate     = row{Admin: Full, Operator: Full}
	administer  = row{Admin: Full}
	replicas    = row{Replica: Full}
	sessions    = row{Worker: Own}
)

// table has a row for every method of every service, by its full name.
var table = map[string]row{
	healthv1.Health_Check_FullMethodName: everyone,
	healthv1.Health_Watch_FullMethodName: known,
	healthv1.Health_List_FullMethodName:  known,

	dtaskv1.JobService_Submit_FullMethodName:           changeJobs,
	dtaskv1.JobService_GetJob_FullMethodName:           readJobs,
	dtaskv1.JobService_GetJobSpec_FullMethodName:       readJobs,
	dtaskv1.JobService_ListJobs_FullMethodName:         readJobs,
	dtaskv1.JobService_ListTasks_FullMethodName:        readJobs,
	dtaskv1.JobService_WatchJob_FullMethodName:         readJobs,
	dtaskv1.JobService_WaitJobs_FullMethodName:         readJobs,
	dtaskv1.JobService_Cancel_FullMethodName:           changeJobs,
	dtaskv1.JobService_Update_FullMethodName:           changeJobs,
	dtaskv1.JobService_GetResult_FullMethodName:        readJobs,
	dtaskv1.JobService_Retry_FullMethodName:            changeJobs,
	dtaskv1.JobService_ListDeadLetters_FullMethodName:  readJobs,
	dtaskv1.JobService_PurgeDeadLetters_FullMethodName: changeJobs,
	dtaskv1.JobService_Logs_FullMethodName:             readJobs,
	dtaskv1.JobService_WatchEvents_FullMethodName:      readJobs,
	dtaskv1.JobService_Explain_FullMethodName:          readJobs,
	dtaskv1.JobService_Plan_FullMethodName:             readJobs,

	dtaskv1.ScheduleService_SetSchedule_FullMethodName:      changeJobs,
	dtaskv1.ScheduleService_ListSchedules_FullMethodName:    readJobs,
	dtaskv1.ScheduleService_GetSchedule_FullMethodName:      readJobs,
	dtaskv1.ScheduleService_PauseSchedule_FullMethodName:    changeJobs,
	dtaskv1.ScheduleService_ResumeSchedule_FullMethodName:   changeJobs,
	dtaskv1.ScheduleService_DeleteSchedule_FullMethodName:   changeJobs,
	dtaskv1.ScheduleService_RunSchedule_FullMethodName:      changeJobs,
	dtaskv1.ScheduleService_BackfillSchedule_FullMethodName: changeJobs,

	dtaskv1.LimitService_SetLimit_FullMethodName:    operate,
	dtaskv1.LimitService_ListLimits_FullMethodName:  readCluster,
	dtaskv1.LimitService_DeleteLimit_FullMethodName: operate,

	dtaskv1.QueueService_SetQueue_FullMethodName:    operate,
	dtaskv1.QueueService_ListQueues_FullMethodName:  readCluster,
	dtaskv1.QueueService_PauseQueue_FullMethodName:  operate,
	dtaskv1.QueueService_ResumeQueue_FullMethodName: operate,
	dtaskv1.QueueService_DeleteQueue_FullMethodName: operate,

	dtaskv1.AdminService_ListWorkers_FullMethodName:   readJobs,
	dtaskv1.AdminService_DrainWorker_FullMethodName:   operate,
	dtaskv1.AdminService_UndrainWorker_FullMethodName: operate,
	dtaskv1.AdminService_Stats_FullMethodName:         clusterWay,
	dtaskv1.AdminService_History_FullMethodName:       replicas,
	dtaskv1.AdminService_Backup_FullMethodName:        administer,
	dtaskv1.AdminService_Barrier_FullMethodName:       replicas,
	dtaskv1.AdminService_DiskUsage_FullMethodName:     operate,
	dtaskv1.AdminService_Load_FullMethodName:          clusterWay,
	dtaskv1.AdminService_Debug_FullMethodName:         administer,

	dtaskv1.AdminService_SetBackupSchedule_FullMethodName:    administer,
	dtaskv1.AdminService_DeleteBackupSchedule_FullMethodName: administer,
	dtaskv1.AdminService_BackupStatus_FullMethodName:         operate,
	dtaskv1.AdminService_WriteBackup_FullMethodName:          replicas,

	dtaskv1.ClusterService_Status_FullMethodName:             clusterWay,
	dtaskv1.ClusterService_Identify_FullMethodName:           identify,
	dtaskv1.ClusterService_AwaitLeader_FullMethodName:        hints,
	dtaskv1.ClusterService_Admit_FullMethodName:              replicas,
	dtaskv1.ClusterService_AddMember_FullMethodName:          operate,
	dtaskv1.ClusterService_RemoveMember_FullMethodName:       operate,
	dtaskv1.ClusterService_TransferLeadership_FullMethodName: operate,
	dtaskv1.ClusterService_UpgradeStatus_FullMethodName:      operate,
	dtaskv1.ClusterService_FinishUpgrade_FullMethodName:      administer,
	dtaskv1.ClusterService_HoldUpgrade_FullMethodName:        administer,
	dtaskv1.ClusterService_SetClusterName_FullMethodName:     administer,
	dtaskv1.ClusterService_Digests_FullMethodName:            replicas,
	dtaskv1.ClusterService_AuditHeads_FullMethodName:         administer,

	dtaskv1.WorkerService_Sessions_FullMethodName: sessions,

	dtaskv1.AuthService_Join_FullMethodName:            everyone, // the secret of a join string is checked instead
	dtaskv1.AuthService_WhoAmI_FullMethodName:          known,
	dtaskv1.AuthService_CreateToken_FullMethodName:     administer,
	dtaskv1.AuthService_ListTokens_FullMethodName:      administer,
	dtaskv1.AuthService_RotateToken_FullMethodName:     administer,
	dtaskv1.AuthService_RevokeToken_FullMethodName:     administer,
	dtaskv1.AuthService_CreateJoinToken_FullMethodName: administer,
	dtaskv1.AuthService_ListJoinTokens_FullMethodName:  administer,
	dtaskv1.AuthService_RevokeJoinToken_FullMethodName: administer,
	dtaskv1.AuthService_TLSStatus_FullMethodName:       operate,
	dtaskv1.AuthService_RotateCA_FullMethodName:        administer,
	dtaskv1.AuthService_GetCAKey_FullMethodName:        replicas,
	dtaskv1.AuthService_RotateKey_FullMethodName:       sessions,
}

// Methods returns the full names of all methods that have a row, sorted.
func Methods() []string { return slices.Sorted(maps.Keys(table)) }

// Rights returns what a role may do by a method: None if it may not call it, or if the
// method is unknown. A principal with AllNamespaces has Full where its role has Own.
func Rights(r Role, fullMethod string) Right {
	if r > Replica {
		return None
	}
	return table[fullMethod][r]
}

// DeniedError means that a caller may not call a method.
type DeniedError struct {
	Principal *Principal // nil: a caller without credentials
	Method    string     // full name
}

// Error names the caller, the method and the roles that may call it.
func (e *DeniedError) Error() string {
	short := e.Method[strings.LastIndexByte(e.Method, '/')+1:]
	if e.Principal == nil {
		return fmt.Sprintf("%s needs credentials: log in with dtaskctl login, or set --token-file", short)
	}
	var allowed []string
	for _, r := range []Role{Admin, Operator, Submitter, Reader, Scraper, Worker, Replica} {
		if Rights(r, e.Method) != None {
			allowed = append(allowed, r.String())
		}
	}
	if len(allowed) == 0 {
		return fmt.Sprintf("%s is not a method of this version", e.Method)
	}
	return fmt.Sprintf("%s may not call %s, which needs the role %s", e.Principal, short, strings.Join(allowed, ", "))
}

// IsMethod reports whether a method has a row.
func IsMethod(fullMethod string) bool {
	_, known := table[fullMethod]
	return known
}

// Authorize returns what a principal may do by a method; nil stands for a caller without
// credentials. It returns a *DeniedError if that is nothing. Everyone who reaches a
// cluster without identities may call all of its methods: its coordinators and workers
// have no identities either.
func Authorize(p *Principal, fullMethod string) (Right, error) {
	role := Anonymous
	if p != nil {
		role = p.Role
	}
	right := Rights(role, fullMethod)
	switch {
	case p != nil && p.Via == ViaOpen && IsMethod(fullMethod):
		return Full, nil
	case right == None:
		return None, &DeniedError{Principal: p, Method: fullMethod}
	case right == Own && p.SeesAll():
		return Full, nil
	}
	return right, nil
}
