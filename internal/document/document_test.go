package document

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files instead of comparing with them")

// A conversion makes a document from a message. Every field of the message must
// change the document, unless omitted lists it. Messages in a message have rows
// of their own.
type conversion struct {
	message proto.Message
	convert func(proto.Message) any
	omitted []string
}

// from adapts a constructor that takes its own message type.
func from[M proto.Message, D any](m M, convert func(M) D, omitted ...string) conversion {
	return conversion{m, func(m proto.Message) any { return convert(m.(M)) }, omitted}
}

// conversions returns all conversions by the name of their golden file.
func conversions() map[string]conversion {
	filled := new(dtaskv1.Job)
	fill(filled.ProtoReflect())
	// These fields are shown only by the text of dtaskctl status.
	job := []string{"error", "tasks_by_state", "levels", "freshness", "key", "digest"}
	task := []string{"index", "progress_permille", "progress_text", "result", "array", "due_at", "dependencies", "conditions", "finally"}
	return map[string]conversion{
		"job":            from(new(dtaskv1.Job), NewJob, append(job, "arrays")...),
		"job_with_tasks": from(new(dtaskv1.Job), func(m *dtaskv1.Job) any { return NewJobWithTasks(m, nil) }, job...),
		"jobs": from(new(dtaskv1.ListJobsResponse), func(m *dtaskv1.ListJobsResponse) any {
			return NewJobs(m.GetJobs(), m.GetIncomplete())
		}, "next_page_token", "freshness"),
		"array":             from(new(dtaskv1.ArrayStatus), newArray, "first"),
		"task":              from(new(dtaskv1.Task), NewTask, append(task, "type", "history")...),
		"task_with_history": from(new(dtaskv1.Task), func(m *dtaskv1.Task) any { return NewTaskWithHistory("42", m) }, task...),
		"array_with_tasks": from(new(dtaskv1.ListTasksResponse), func(m *dtaskv1.ListTasksResponse) any {
			return NewArrayWithTasks("42", "map", m.GetTasks())
		}, "freshness", "selected", "job"),
		"change": from(new(dtaskv1.ListTasksResponse), func(m *dtaskv1.ListTasksResponse) any {
			return NewChange(7, true, filled, m.GetTasks())
		}, "freshness", "selected", "job"),
		"attempt":     from(new(dtaskv1.AttemptRecord), newAttempt),
		"results":     from(new(dtaskv1.GetResultResponse), NewResults, "next"),
		"result":      from(new(dtaskv1.TaskResult), newResult, "task"),
		"task_result": from(new(dtaskv1.TaskResult), NewTaskResult),
		"dead_letters": from(new(dtaskv1.ListDeadLettersResponse), func(m *dtaskv1.ListDeadLettersResponse) any {
			return NewDeadLetters(m.GetDeadLetters())
		}, "next_page_token", "freshness"),
		"dead_letter":              from(new(dtaskv1.DeadLetter), newDeadLetter, "payload", "history"),
		"dead_letter_with_history": from(new(dtaskv1.DeadLetter), NewDeadLetterWithHistory),
		"cluster":                  from(new(dtaskv1.StatusResponse), NewCluster, "replica"),
		"upgrade":                  from(new(dtaskv1.UpgradeStatusResponse), NewUpgrade),
		"finished_upgrade":         from(new(dtaskv1.FinishUpgradeResponse), NewFinishedUpgrade),
		"named_cluster":            from(new(dtaskv1.SetClusterNameResponse), func(m *dtaskv1.SetClusterNameResponse) any { return NewNamedCluster("prod", m) }),
		"held_upgrade": from(new(dtaskv1.HoldUpgradeResponse), func(m *dtaskv1.HoldUpgradeResponse) any {
			return NewHeldUpgrade(m, true)
		}),
		"tokens": from(new(dtaskv1.ListTokensResponse), func(m *dtaskv1.ListTokensResponse) any {
			return NewTokens(m.GetIdentities())
		}, "next_page_token"),
		// The credentials are shown only by the text of dtaskctl token list, and labels by
		// dtaskctl worker list.
		"token": from(new(dtaskv1.Identity), newToken, "credentials", "labels"),
		"new_token": from(new(dtaskv1.Identity), func(m *dtaskv1.Identity) any {
			return NewNewToken("dtask_…", m)
		}, "created_by", "created_at", "last_used_at", "state", "credentials", "labels"),
		"revoked_token": from(new(dtaskv1.RevokeTokenResponse), NewRevokedToken),
		"whoami":        from(new(dtaskv1.WhoAmIResponse), NewWhoAmI),
		"join_tokens": from(new(dtaskv1.ListJoinTokensResponse), func(m *dtaskv1.ListJoinTokensResponse) any {
			return NewJoinTokens(m.GetJoinTokens())
		}, "next_page_token"),
		"new_join_token": from(new(dtaskv1.JoinToken), func(m *dtaskv1.JoinToken) any {
			return NewNewJoinToken("dtj1-…", m)
		}),
		"revoked_join_token": from(new(dtaskv1.RevokeJoinTokenResponse), NewRevokedJoinToken),
		"login": from(new(dtaskv1.Identity), func(m *dtaskv1.Identity) any {
			return NewLogin("prod", "0123456789abcdef0123456789abcdef", m)
		}, "created_by", "created_at", "last_used_at", "state", "credentials", "labels"),
		"tls_status": from(new(dtaskv1.TLSStatusResponse), func(m *dtaskv1.TLSStatusResponse) any { return NewTLSStatus(m, time.UnixMilli(1)) }),
		"rotated_ca": from(new(dtaskv1.RotateCAResponse), func(m *dtaskv1.RotateCAResponse) any { return NewRotatedCA(m, time.UnixMilli(1)) }),
		"alarm":      from(new(dtaskv1.Alarm), newAlarm),
		"member":     from(new(dtaskv1.Member), newMember, "http_address"),
		"status": from(new(dtaskv1.StatusResponse), func(m *dtaskv1.StatusResponse) any {
			return NewStatus(m, []*dtaskv1.Job{filled})
		}, "replica"),
		"load":            from(new(dtaskv1.LoadResponse), NewLoad),
		"explanation":     from(new(dtaskv1.ExplainResponse), NewExplanation, "tasks", "job_state"),
		"job_explanation": from(new(dtaskv1.ExplainResponse), NewJobExplanation, "task", "state", "workers", "changes", "estimate"),
		"start_estimate":  from(new(dtaskv1.StartEstimate), newEstimate),
		"task_group":      from(new(dtaskv1.TaskGroup), newTaskGroup),
		"reason":          from(new(dtaskv1.Reason), newReason),
		"worker_group":    from(new(dtaskv1.WorkerGroup), newWorkerGroup),
		"start_change":    from(new(dtaskv1.StartChange), newStartChange),
		"worker_offer":    from(new(dtaskv1.WorkerOffer), newWorkerOffer),
		"log_event":       from(new(dtaskv1.Event), NewLogEvent),
		"job_plan":        from(new(dtaskv1.PlanResponse), NewJobPlan, "low_ms", "high_ms", "samples", "freshness"),
		"plan_class":      from(new(dtaskv1.PlanClass), newPlanClass),
		"plan_bound":      from(new(dtaskv1.PlanBound), newPlanBound),
		"replica_usage": from(new(dtaskv1.DiskUsageResponse), func(m *dtaskv1.DiskUsageResponse) any {
			return NewReplicaUsage("n1", "10.0.0.1:7460", m, errors.New("error"))
		}, "server_id"),
		"backup_status":           from(new(dtaskv1.BackupStatusResponse), NewBackupStatus, "freshness"),
		"backup_schedule":         from(new(dtaskv1.BackupSchedule), NewBackupSchedule),
		"backup_run":              from(new(dtaskv1.BackupRun), newBackupRun),
		"deleted_backup_schedule": from(new(dtaskv1.DeleteBackupScheduleResponse), NewDeletedBackupSchedule),
		"workers": from(new(dtaskv1.ListWorkersResponse), func(m *dtaskv1.ListWorkersResponse) any {
			return NewWorkers(m.GetWorkers(), m.GetNextPageToken() != "")
		}, "freshness"),
		"worker": from(new(dtaskv1.Worker), NewWorker, "resources", "up_since", "down_since", "version", "address"),
		"schedules": from(new(dtaskv1.ListSchedulesResponse), func(m *dtaskv1.ListSchedulesResponse) any {
			return NewSchedules(m.GetSchedules())
		}, "next_page_token", "freshness"),
		"schedule":               from(new(dtaskv1.Schedule), NewSchedule, "outcomes", "time_zones"),
		"set_schedule":           from(new(dtaskv1.Schedule), NewSetSchedule, "outcomes"),
		"schedule_with_outcomes": from(new(dtaskv1.Schedule), NewScheduleWithOutcomes, "time_zones"),
		"schedule_backfill": from(new(dtaskv1.BackfillScheduleResponse), func(m *dtaskv1.BackfillScheduleResponse) any {
			return NewScheduleBackfill(m.GetRuns())
		}),
		"limits": from(new(dtaskv1.ListLimitsResponse), func(m *dtaskv1.ListLimitsResponse) any {
			return NewLimits(m.GetLimits())
		}, "freshness"),
		"limit": from(new(dtaskv1.Limit), NewLimit),
		"queues": from(new(dtaskv1.ListQueuesResponse), func(m *dtaskv1.ListQueuesResponse) any {
			return NewQueues(m.GetQueues())
		}, "freshness"),
		"queue": from(new(dtaskv1.Queue), NewQueue),
		"queue_summary": from(new(dtaskv1.ListQueuesResponse), func(m *dtaskv1.ListQueuesResponse) any {
			return NewQueueSummary(m.GetQueues())
		}, "freshness"),
		"queue_settings": from(new(dtaskv1.QueueSettings), newQueueSettings),
		"event_of_job": from(new(dtaskv1.Job), func(m *dtaskv1.Job) any {
			return Event{Type: "job.failed", Timestamp: Time(1), Data: NewJob(m)}
		}, append(job, "arrays")...),
		"event_of_dead_letter": from(new(dtaskv1.DeadLetter), func(m *dtaskv1.DeadLetter) any {
			return Event{Type: "dead_letter", Timestamp: Time(1), Data: NewDeadLetterWithHistory(m)}
		}),
	}
}

// plain are the documents that callers fill, by the name of their golden file.
func plain() map[string]any {
	return map[string]any{
		"submission": new(Submission), "submissions": new(Submissions), "plan": new(Plan), "plans": new(Plans), "critical_path": new(CriticalPath), "ticks": new(Ticks),
		"cancellation": new(Cancellation), "changed_jobs": new(ChangedJobs), "update": new(Update), "requeue": new(Requeue), "purge": new(Purge),
		"added_member": new(AddedMember), "removed_member": new(RemovedMember), "leader_transfer": new(LeaderTransfer),
		"versions": new(Versions), "logs": new(Logs), "bench": new(Bench),
		"context": new(Context), "contexts": new(Contexts),
		"disk_usage": new(DiskUsage), "saved_debug": new(SavedDebug), "paused_schedule": new(PausedSchedule), "deleted_schedule": new(DeletedSchedule), "paused_queue": new(PausedQueue), "deleted_queue": new(DeletedQueue), "deleted_limit": new(DeletedLimit), "debug_manifest": new(DebugManifest),
	}
}

func TestDocumentsCarryEveryFieldOfTheirMessages(t *testing.T) {
	t.Parallel()
	for name, c := range conversions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fill(c.message.ProtoReflect())
			whole := marshal(t, c.convert(c.message))
			golden(t, name, whole)
			fields := c.message.ProtoReflect().Descriptor().Fields()
			for i := range fields.Len() {
				f, partial := fields.Get(i), proto.Clone(c.message)
				partial.ProtoReflect().Clear(f)
				carried := !bytes.Equal(marshal(t, c.convert(partial)), whole)
				if omitted := slices.Contains(c.omitted, string(f.Name())); carried == omitted {
					t.Errorf("%s: the document carries it: %t; listed as omitted: %t", f.FullName(), carried, omitted)
				}
			}
			for _, name := range c.omitted {
				if fields.ByName(protoreflect.Name(name)) == nil {
					t.Errorf("unknown omitted field %q", name)
				}
			}
		})
	}
}

// Documents without a message are filled through their own fields.
func TestDocumentsOfCommandsKeepTheirForm(t *testing.T) {
	t.Parallel()
	for name, doc := range plain() {
		fillStruct(reflect.ValueOf(doc).Elem())
		golden(t, name, marshal(t, doc))
	}
}

func TestEveryGoldenFileBelongsToADocument(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if want := len(conversions()) + len(plain()); len(files) != want {
		t.Errorf("got %d golden files, want %d", len(files), want)
	}
}

func TestValuesKeepJSONAndQuoteOtherText(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"": "null", `{"n": 9223372036854775807}`: `{"n":9223372036854775807}`, "hello <world>": `"hello <world>"`,
		"null": "null", "\"quoted\"\n": `"quoted"`, "\xff": `"\ufffd"`,
	} {
		got, err := Marshal(newResult(&dtaskv1.TaskResult{Result: []byte(value)}))
		if err != nil || !strings.HasPrefix(string(got), `{"state":"unspecified","result":`+want+`,`) {
			t.Errorf("value %q: got %s, %v; want result %s", value, got, err, want)
		}
	}
}

func TestListsAreNeverNull(t *testing.T) {
	t.Parallel()
	for want, doc := range map[string]any{
		`{"jobs":[]}`:         NewJobs(nil, false),
		`{"dead_letters":[]}`: NewDeadLetters(nil),
		`{"workers":[]}`:      NewWorkers(nil, false),
	} {
		if got, err := Marshal(doc); err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
	if got := NewWorker(&dtaskv1.Worker{}).Labels; got == nil {
		t.Error("a worker without labels has null labels")
	}
}

func marshal(t *testing.T, doc any) []byte {
	t.Helper()
	text, err := MarshalIndent(doc)
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden.json")
	if *rewrite {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

// fill sets every field of a message, and of the messages in it, to a value that
// is not its default.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
			entry := m.Mutable(f).Map()
			entry.Set(scalar(f.MapKey()).MapKey(), scalar(f.MapValue()))
		case f.IsList() && f.Message() != nil:
			fill(m.Mutable(f).List().AppendMutable().Message())
		case f.IsList():
			m.Mutable(f).List().Append(scalar(f))
		case f.Message() != nil:
			fill(m.Mutable(f).Message())
		default:
			m.Set(f, scalar(f))
		}
	}
}

// scalar is a value for a field: its name if it takes text, and otherwise a value
// that depends on its number.
func scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	n := int(f.Number())
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(string(f.Name()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(`{"field":"` + f.Name() + `"}`))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(1).Number())
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(n) * 1001)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	}
	panic("no value for a field of kind " + f.Kind().String())
}

// fillStruct sets every field of a document.
func fillStruct(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fillStruct(v.Field(i))
			if f := v.Field(i); f.Kind() == reflect.String {
				f.SetString(strings.Split(v.Type().Field(i).Tag.Get("json"), ",")[0])
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillStruct(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fillStruct(value)
		v.SetMapIndex(reflect.ValueOf("key"), value)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillStruct(v.Elem())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(8)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.String:
		v.SetString("text")
	default:
		panic("no value for a field of kind " + v.Kind().String())
	}
}
