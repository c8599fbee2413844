package fsm

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of messages, written one by one: the encoding of messages is not guaranteed.
func goldenText(field protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, field, protowire.BytesType), value)
}

func goldenNumber(field protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), value)
}

func goldenMessage(field protowire.Number, fields ...[]byte) []byte {
	return goldenText(field, string(slices.Concat(fields...)))
}

// goldenEither is an alternative to the resources of a policy: an amount of one resource.
func goldenEither(resource string, amount uint64) []byte {
	return goldenMessage(24, goldenMessage(1, goldenText(1, resource), goldenNumber(2, amount)))
}

// goldenShared is the concurrency of a header whose jobs with the key "deploy" run one at a time, and wait.
func goldenShared() []byte {
	return goldenMessage(19, goldenText(1, "deploy"), goldenNumber(2, 1), goldenNumber(3, uint64(OverlapWaitAll)))
}

// goldenFirst is the first policy of goldenHeader.
var goldenFirst = goldenHeader[3:5]

// goldenJob returns the operations that submit a job with the tasks of goldenChunk, and a header of
// its key as name, the fields, and the second policy. One that has a gate is submitted as such.
func goldenJob(id JobID, key string, gated bool, fields ...[]byte) []Op {
	seal := &SealUpload{Job: id, Sum: goldenChunk().Sum(0), Digest: [16]byte{byte(id)}}
	ops := []Op{
		&BeginUpload{ID: id, Key: key, KeyExpires: 90_000, Header: slices.Concat(goldenText(1, key), slices.Concat(fields...), goldenHeader[5:]), Total: 3},
		&AddChunk{Job: id, Chunk: goldenChunk()}, seal,
	}
	if gated {
		asGated := SealGated(*seal)
		ops[2] = &asGated
	}
	return ops
}

// goldenSchedule returns the operations that set a schedule in place of submitting a job.
func goldenSchedule(upload JobID, key string, r Recurrence, rules ScheduleRules, fields ...[]byte) []Op {
	ops := goldenJob(upload, key, false, fields...)
	ops[2] = &SetSchedule{Upload: upload, Sum: goldenChunk().Sum(0), Digest: [16]byte{9}, Recurrence: r, ScheduleRules: rules, By: "alice", AtMS: 1500}
	return ops
}

// level3Log returns a log whose state has what level 3 added: schedules and their runs, queues,
// named limits, gates that are closed and open, alternatives of resources, and moved jobs.
func level3Log() []Entry {
	cron := Recurrence{
		Cron: []string{"30 2 * * *", "0 9 * * MON"}, Zone: "Europe/Berlin", Gap: 2, Repeat: 1, JitterMS: 300_000,
		From: "2026-01-01", Until: "2027-01-01T08:00", Except: []string{"2026-12-25"}, Ordered: true,
	}
	entries := [][]Op{
		{&SetClusterID{ID: "c0ffee"}, &SetLevel{Level: 3}, &SetClusterName{Name: "eu-prod-1"}, worker(1), worker(2)},
		{
			&RecordAuditHead{AuditHead{ServerID: "n1", Seq: 3, Hash: hashed(7), AtMS: 1900}},
			&SetBackupSchedule{BackupSchedule{EveryMS: 3_600_000, To: "file:///mnt/backups", Keep: 48, AtMS: 1901}},
			&RecordBackup{BackupRun{ScheduleMS: 1901, AtMS: 1902, ServerID: "n1", To: "file:///mnt/backups", File: "a.dtbk", Index: 3, Bytes: 70000}},
			&RecordBackup{BackupRun{ScheduleMS: 1901, AtMS: 1903, ServerID: "n1", To: "file:///mnt/backups", Error: "no space left on device"}},
		},
		{
			&SetQueue{
				Name: "etl", QueueSettings: QueueSettings{
					Weight: 3, MaxRunning: 200, Max: []Resource{{"cpu", 1 << 40}, {"gpu", 4000}}, Require: []Label{{"pool", "etl"}}, Rate: 2500, PeriodMS: 60_000, Burst: 10,
				}, By: "alice", AtMS: 2000,
			},
			&SetQueue{Name: "ml", QueueSettings: QueueSettings{Weight: 1}, By: "alice", AtMS: 2001},
			&SetQueue{Name: "ml", QueueSettings: QueueSettings{Weight: 2}, Pause: QueuePause{AtMS: 2002, By: "bob", Reason: "new disk"}, By: "bob", AtMS: 2002},
			&SetLimit{Name: "db", LimitSettings: LimitSettings{Rate: 50, PeriodMS: 1000, Burst: 100}, By: "alice", AtMS: 2003},
			&SetLimit{Name: "tenant/*", LimitSettings: LimitSettings{Running: 2}, By: "alice", AtMS: 2004},
		},
		// Schedules 1 to 3, and jobs 2 to 4, which are runs: the first one holds the key of the schedule.
		goldenSchedule(1, "nightly", cron, ScheduleRules{Overlap: OverlapWaitAll, Missed: MissedAll, WithinMS: 86_400_000}, goldenFirst, goldenText(15, "etl")),
		{&Fire{Schedule: 1, Version: 1, TickMS: 5000, Civil: 3605, Decision: TickRuns}},
		{&OpenGate{Job: 2}, &Fire{Schedule: 1, Version: 1, TickMS: 5500, Civil: 3606, Decision: TickSkippedMissed, Earlier: 7}},
		{&Fire{Schedule: 1, Version: 1, TickMS: 6000, Civil: 3607, Decision: TickRuns}, &RunSchedule{Schedule: 1, TickMS: 5000, PreviousMS: 4000, Key: "run", KeyExpires: 90_000, Digest: [16]byte{8}}},
		goldenSchedule(5, "hourly", Recurrence{EveryMS: 3_600_000}, ScheduleRules{Overlap: OverlapSkip, Missed: MissedSkip}, goldenFirst, goldenText(13, "batch")),
		{&PauseSchedule{ID: 2, Reason: "new disk", By: "bob", AtMS: 9000}},
		goldenSchedule(6, "once", Recurrence{At: []string{"2026-03-01T08:00"}, Zone: "UTC"}, ScheduleRules{Overlap: OverlapAllow, Missed: MissedOne, WithinMS: 1000}, goldenFirst),
		// Jobs 7 to 11 have gates: closed, open, a holder of a key, one that waits for it, and one that only expires.
		goldenJob(7, "later", true, goldenFirst, goldenNumber(16, 80_000), goldenNumber(17, 70_000), goldenNumber(18, 100_000)),
		goldenJob(8, "after", true, goldenFirst, goldenNumber(17, 500)),
		{&OpenGate{Job: 8}, &Assign{Items: []AssignItem{AssignItem(hold(8, 0, 1, 1))}}},
		goldenJob(9, "holder", true, goldenFirst, goldenShared()),
		{&OpenGate{Job: 9}},
		goldenJob(10, "waits", true, goldenFirst, goldenShared()),
		goldenJob(11, "expires", true, goldenFirst, goldenNumber(18, 60_000)),
		// The first task of job 12 runs with its second alternative. Job 13 is moved while its task
		// runs, and job 14 is moved and back.
		goldenJob(12, "either", false, goldenMessage(8, goldenNumber(8, 2), goldenText(23, "tenant/acme"), goldenText(23, "db"), goldenEither("cpu", 2000), goldenEither("gpu", 500))),
		{&AssignAlternative{Items: []AlternativeItem{{hold(12, 0, 1, 2), 2}}}, &RecordStart{Items: []HeldAttempt{hold(12, 0, 1, 2)}}},
		goldenJob(13, "moved", false, goldenFirst, goldenText(15, "ml")),
		{&Assign{Items: []AssignItem{AssignItem(hold(13, 0, 1, 1))}}, &MoveJob{Job: 13, Queue: "etl", Precondition: Precondition{Key: "move", KeyExpires: 90_000, Digest: [16]byte{7}}}},
		goldenJob(14, "back", false, goldenFirst),
		{&MoveJob{Job: 14, Queue: "ml"}, &MoveJob{Job: 14, Queue: DefaultQueue}},
	}
	log := make([]Entry, len(entries))
	for i, ops := range entries {
		log[i] = Entry{NowMS: int64(1000 * (i + 1)), Ops: ops}
	}
	return log
}

func TestReleasedSnapshotsOfLevel3AreReadForever(t *testing.T) {
	t.Parallel()
	readsReleasedSnapshot(t, "snapshot_v3_level3", "level3", level3Log(), describeLevel3)
}

// describeLevel3 formats a state as text, with what level 3 added.
func describeLevel3(s *State) []byte {
	b := fmt.Appendf(nil, "cluster %q, audit heads %+v\n", s.ClusterName(), s.AuditHeads())
	backups, _ := s.BackupSchedule()
	last, _ := s.LastBackup()
	failed, _ := s.FailedBackup()
	b = fmt.Appendf(b, "backups %+v, last %+v, failed %+v\n", backups, last, failed)
	for q := range s.Queues() {
		b = fmt.Appendf(b, "queue %+v\n", *q)
	}
	for l := range s.NamedLimits() {
		b = fmt.Appendf(b, "limit %+v\n", *l)
	}
	for x := range s.Schedules() {
		shown := *x
		shown.form = nil
		b = fmt.Appendf(b, "schedule %+v, %d tasks in queue %q, open runs %v\n", shown, x.Total(), QueueOf(x.Header()), s.OpenRuns(x))
	}
	for j := range s.Jobs(0) {
		b = fmt.Appendf(b, "job %d in queue %q starts at %d, expires at %d, key %q, run for %d after %d\n",
			j.ID, QueueOf(j.Header), j.StartMS(), j.ExpiryMS(), ConcurrencyKey(j.Header), j.Header.GetRun().GetTickMs(), j.Header.GetRun().GetPreviousMs())
		for _, p := range j.Header.GetPolicies() {
			if len(p.GetUses()) > 0 {
				b = fmt.Appendf(b, "  uses %q", p.GetUses())
				for _, a := range p.GetAlternatives() {
					b = fmt.Appendf(b, " %v", a.GetResources())
				}
				b = append(b, '\n')
			}
		}
	}
	return append(b, describeState(s)...)
}
