package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// goldenHeader is a JobHeader with the name "j" and two policies, the second at
// most once. It is bytes because the encoding of messages is not guaranteed.
var goldenHeader = []byte{0x0a, 1, 'j', 0x42, 0, 0x42, 2, 0x40, 2}

// webhookHeader is goldenHeader with a webhook.
var webhookHeader = append(slices.Clone(goldenHeader), "\x4a\x09http://a/"...)

func goldenChunk() *Chunk {
	b := NewChunkBuilder(0)
	b.Add("first", 0, nil, []byte("body"))
	b.Add("second", 1, []uint32{0}, nil)
	b.Add("third", 0, []uint32{0, 1}, []byte{0, 255})
	return b.Chunk()
}

// conditionalChunk has a task for each condition.
func conditionalChunk() *Chunk {
	b := NewChunkBuilder(0)
	b.Add("first", 0, nil, nil)
	b.AddConditional("ended", 0, []uint32{0}, []Condition{WhenEnded}, nil)
	b.AddConditional("both", 0, []uint32{0, 1}, []Condition{WhenFailed, WhenTolerated}, nil)
	return b.Chunk()
}

// examples returns one or more operations of each kind. All fields are in use. Golden
// files, fuzz seeds and tests of all operations start from it.
func examples() []Op {
	sum := goldenChunk().Sum(0)
	digest := [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255}
	held := []HeldAttempt{hold(1, 2, 1, 7), hold(1, 1, 3, 7), hold(300, 70000, 1<<32-1, 1<<32-1)}
	return []Op{
		&SetClusterID{ID: "00112233445566778899aabbccddeeff"},
		&Replica{ServerID: "n2-1", Instance: "5f1c", Replaces: "n2", LowWaterMark: 70000},
		&StartTerm{Term: 300, ServerID: "n1"},
		&BeginUpload{ID: 1, Key: "key", KeyExpires: 1_700_000_000_000, Header: goldenHeader, Total: 3},
		&AddChunk{Job: 1, Chunk: goldenChunk()},
		&SealUpload{Job: 1, Sum: sum, Digest: digest},
		&DropUpload{Job: 129},
		&Assign{Items: []AssignItem{AssignItem(held[0]), AssignItem(held[1]), AssignItem(held[2])}},
		&AssignAlternative{Items: []AlternativeItem{{held[0], 1}, {held[1], MaxAlternatives}}},
		&RecordStart{Items: held},
		&Complete{Items: []CompleteItem{
			{HeldAttempt: held[0], DurationMS: 1500, Result: []byte("done"), OutputSize: 1 << 40, OutputSHA256: bytes.Repeat([]byte{0xab}, 32)},
			{HeldAttempt: held[1]},
			{HeldAttempt: held[2], Result: []byte{0}},
		}},
		&Fail{Items: []FailItem{
			{HeldAttempt: held[0], DurationMS: 20, Next: NextRetry, Due: 1_700_000_001_000, CountsAsRetry: true, Error: "exit 1"},
			{HeldAttempt: held[2], Next: NextFailed, Due: -1},
		}},
		&Requeue{Items: held},
		&RequeueLost{Items: held},
		&Lose{Items: held[:1]},
		&Due{Items: []AttemptRef{held[0].AttemptRef, held[2].AttemptRef, held[1].AttemptRef}},
		&CancelJob{Job: 1, Reason: "not needed"},
		&CancelTask{Task: ref(1, 2), Reason: "not needed", WholeArray: true},
		&FailJob{Job: 1, Error: "deadline passed"},
		&FailTask{Task: ref(1, 2), Error: "waited too long"},
		&RegisterWorker{
			ID: 7, Name: "w7", Incarnation: "8d3e", Slots: 4, Labels: []Label{{"gpu", ""}, {"zone", "a"}},
			Resources: []Resource{{"cpu", 4000}, {"mem", -1}}, Version: "0.2.0", Address: "127.0.0.1:9",
		},
		&MarkWorkerDown{ID: 7, Reason: "silent"},
		&ForgetWorkers{IDs: []WorkerID{7, 300}},
		&ForgetKeys{Items: []string{"key", "other"}},
		&Revive{Job: 1, Tasks: []uint32{0, 2, 70000}, Precondition: Precondition{IfVersion: 4, Key: "retry", KeyExpires: 1_700_000_000_000, Digest: digest}},
		&Purge{Job: 300, Tasks: []uint32{1, 1<<32 - 1}, Precondition: Precondition{IfVersion: 5, Key: "purge", KeyExpires: 1_700_000_000_000, Digest: digest}},
		&NotifyDeadLetters{Items: []DeadLetterNotification{{ref(1, 2), DeadLetterWebhookNotification}, {ref(300, 1<<32-1), DeadLetterCommandNotification}, {ref(1, 0), DeadLetterWebhookNotification}}},
		&RecordDelivered{Items: []Delivery{{1, true}, {1 << 40, false}}},
		&DrainWorker{ID: 7, Until: 1_700_000_002_000, Reason: "new disk"},
		&UndrainWorker{ID: 300},
		&Checkpoint{HeldAttempt: held[2], Saved: SavedCheckpoint{
			Number: 300, Format: DataCheckpoint, Data: []byte("half"), File: "c/1/2/3-1", Size: 1 << 33, SHA256: bytes.Repeat([]byte{0xcd}, 32),
		}},
		&Update{
			Job: 1, Task: 2, Precondition: Precondition{IfVersion: 3, Key: "again", KeyExpires: 1_700_000_000_000, Digest: digest}, Set: allFields - 1,
			Priority: 3, MaxRetries: 7, TimeoutMS: 1500, NotBeforeMS: 1_700_000_002_000, Body: []byte{0x2a, 1, 'x'},
		},
		&RememberResults{Items: []RememberItem{{ref(1, 2), 1_700_000_003_000}, {ref(300, 1<<32-1), -1}}},
		&ReuseResults{Items: []TaskRef{ref(1, 2), ref(300, 1<<32-1)}},
		&ForgetResults{Items: []string{"me\x00key", "\x00other"}},
		&AddChunk{Job: 1, Chunk: NewArrayChunk(3, Array{
			Name: "map", Policy: 1, Deps: []uint32{0, 2}, Body: []byte("body"), Ranges: []IndexRange{{0, 5, 21}, {70000, 1, 300}}, Items: 321, Chunk: 10,
			MaxParallel: 50, JSON: true,
		}, nil)},
		&AddChunk{Job: 7, Chunk: conditionalChunk()},
		&SetLevel{Level: 300, Held: true},
		&Archive{Items: []JobID{300, 1}},
		&ExpireHistory{EndedBefore: 1_700_000_004_000},
		&CreateIdentity{
			Name: "ci", Grant: Grant{Role: RoleSubmitter, Namespaces: []string{"batch", "etl"}},
			Credential: Credential{Kind: TokenCredential, Hash: hashed(1), ExpiresMS: 1_700_000_005_000},
			CreatedBy:  "alice", CreatedMS: 1_700_000_004_000, Key: "key",
		},
		&AddCredential{ID: 300, Credential: Credential{Kind: KeyCredential, Hash: hashed(2)}, CreatedMS: 1_700_000_004_001, OthersExpireMS: 1_700_000_004_500},
		&RevokeIdentity{IDs: []IdentityID{1, 300}, AtMS: 1_700_000_004_002, By: "alice"},
		&DropCredential{ID: 300, Hash: hashed(2)},
		&CreateJoinToken{
			Purpose: JoinWorker, Grant: Grant{Role: RoleWorker, Namespaces: []string{AllNamespaces}, Labels: []Label{{"gpu", ""}, {"zone", "a"}}},
			NamePattern: "gpu-*", Hash: hashed(3), Uses: 70000, ExpiresMS: 1_700_000_005_000, CreatedBy: "alice", CreatedMS: 1_700_000_004_003, Key: "join",
		},
		&RedeemJoinToken{
			Token: 300, SecretHash: hashed(3), Purpose: JoinWorker, Name: "gpu-1", Credential: Credential{Kind: KeyCredential, Hash: hashed(4)},
			Replace: true, AtMS: 1_700_000_004_004, Key: "first",
		},
		&RevokeJoinToken{ID: 300, AtMS: 1_700_000_004_005, By: "alice"},
		&SetTrust{Roots: [][]byte{{0x30, 1}, {0x30, 2}}, AtMS: 1_700_000_004_006},
		&PinReplica{ServerID: "n2-1", KeyHashes: [][32]byte{hashed(5), hashed(6)}},
		&ForgetIdentities{BeforeMS: 1_700_000_004_007, Max: 300},
		&RecordAuditHead{AuditHead{ServerID: "n2-1", Seq: 300, Hash: hashed(7), AtMS: 1_700_000_004_008}},
		&SetBackupSchedule{BackupSchedule{EveryMS: 3_600_000, To: "file:///mnt/backups", Keep: 48, AtMS: 1_700_000_004_009}},
		&DeleteBackupSchedule{},
		&RecordBackup{BackupRun{
			ScheduleMS: 1_700_000_004_009, AtMS: 1_700_000_004_010, ServerID: "n2-1", To: "file:///mnt/backups",
			File: "state-00000000000000000300.dtbk", Index: 300, Bytes: 70000,
		}},
		&RecordBackup{BackupRun{ScheduleMS: 1_700_000_004_009, AtMS: 1_700_000_004_011, ServerID: "n2-1", To: "file:///mnt/backups", Error: "no space left on device"}},
		&SetSchedule{
			Upload: 300, Sum: sum, Digest: digest, Recurrence: Recurrence{
				Cron: []string{"30 2 * * *", "0 9 * * MON"}, Zone: "Europe/Berlin", Gap: 2, Repeat: 1, JitterMS: 300_000,
				From: "2026-01-01", Until: "2027-01-01T08:00", Except: []string{"2026-12-25"}, Ordered: true,
			},
			ScheduleRules: ScheduleRules{Overlap: OverlapWait, Missed: MissedAll, WithinMS: 86_400_000},
			Owner:         300, By: "alice", IfVersion: 7, AtMS: 1_700_000_004_009,
		},
		&DeleteSchedule{ID: 300, IfVersion: 7},
		&PauseSchedule{ID: 300, Reason: "new disk", By: "alice", AtMS: 1_700_000_004_010},
		&ResumeSchedule{ID: 300, AtMS: 1_700_000_004_011},
		&Fire{Schedule: 300, Version: 7, TickMS: 1_700_000_005_000, Civil: 1_700_003_605, Decision: TickRuns, Earlier: 70000},
		&SealGated{Job: 300, Sum: sum, Digest: digest},
		&OpenGate{Job: 300},
		&ExpireJob{Job: 300, Reason: "expired: no task started within 2h"},
		&RunSchedule{Schedule: 300, TickMS: 1_700_000_005_000, PreviousMS: 1_699_900_000_000, Key: "run", KeyExpires: 1_700_000_006_000, Digest: digest},
		&SetClusterName{Name: "eu-prod-1"},
		&SetQueue{
			Name: "etl", QueueSettings: QueueSettings{
				Weight: 300, MaxRunning: 200, Max: []Resource{{"cpu", 1 << 40}, {"gpu", 4000}}, Require: []Label{{"pool", "etl"}}, Rate: 2500, PeriodMS: 60_000, Burst: 70000,
			},
			Pause: QueuePause{AtMS: 1_700_000_004_012, By: "bob", Reason: "new disk"}, By: "alice", IfVersion: 7, AtMS: 1_700_000_004_013,
		},
		&DeleteQueue{Name: "etl", IfVersion: 7},
		&MoveJob{Job: 300, Precondition: Precondition{IfVersion: 4, Key: "move", KeyExpires: 1_700_000_000_000, Digest: digest}, Queue: "etl"},
		&SetLimit{Name: "tenant/*", LimitSettings: LimitSettings{Running: 300, Rate: 1000, PeriodMS: 3_600_000, Burst: 70_000}, By: "alice", IfVersion: 7, AtMS: 1_700_000_004_014},
		&DeleteLimit{Name: "tenant/*", IfVersion: 7},
	}
}

// hashed returns a hash that differs for each number.
func hashed(n byte) [32]byte { return [32]byte{n, 31: 0xff} }

// exampleName returns the name of an example's golden file.
func exampleName(op Op) string {
	name := operations[op.kind()].name
	switch o := op.(type) {
	case *AddChunk:
		if o.Chunk.IsArray() {
			return name + "-array"
		} else if o.Chunk.conditions {
			return name + "-conditions"
		}
	case *RecordBackup:
		if o.Error != "" {
			return name + "-failed"
		}
	}
	return name
}

func TestEveryOperationHasARowAndAnExample(t *testing.T) {
	t.Parallel()
	found := make(map[opKind]bool)
	for _, op := range examples() {
		found[op.kind()] = true
	}
	names := make(map[string]bool)
	for k, row := range operations {
		if row.make == nil {
			if k != 0 {
				t.Errorf("kind %d: missing row", k)
			}
			continue
		}
		if got := row.make().kind(); int(got) != k {
			t.Errorf("operation %s in row %d: got kind %d", row.name, k, got)
		}
		if !found[opKind(k)] {
			t.Errorf("operation %s: missing example", row.name)
		}
		if names[row.name] || row.name == "" {
			t.Errorf("name %q of operation %d is empty or not unique", row.name, k)
		}
		names[row.name] = true
	}
}

// The reference model panics on an unknown operation. With this test every
// operation is compared with it.
func TestRandomSequencesAcceptAndRejectEveryOperation(t *testing.T) {
	t.Parallel()
	accepted, rejected := make(map[opKind]int), make(map[opKind]int)
	for seed := range uint64(300) {
		g, s := newGenerator(seeded(seed)), New()
		if seed%2 == 0 { // else most operations of the highest level come before it is raised
			mustApply(t, s, &SetLevel{Level: MaxLevel})
		}
		for n := range 400 {
			op, b := g.op(s), NewEntryBuilder(s, int64(n), nil)
			if r := b.Do(op); r != Accepted {
				rejected[op.kind()]++
			}
			if b.Items() > 0 { // a list may have only some of its items
				accepted[op.kind()]++
			}
			b.Finish()
		}
	}
	for k, row := range operations {
		if row.make != nil && (accepted[opKind(k)] == 0 || rejected[opKind(k)] == 0) {
			t.Errorf("operation %s: got %d accepted and %d rejected, want both", row.name, accepted[opKind(k)], rejected[opKind(k)])
		}
	}
}

func TestEncodingAndDecodingAreInverse(t *testing.T) {
	t.Parallel()
	for _, op := range examples() {
		data := Encode(nil, Entry{NowMS: -1, After: 1 << 40, Ops: []Op{op, op}})
		got, err := Decode(data)
		if err != nil {
			t.Errorf("%s: %v", exampleName(op), err)
			continue
		}
		if want := fmt.Sprintf("%+v", readable(Entry{NowMS: -1, Ops: []Op{op, op}})); fmt.Sprintf("%+v", readable(got)) != want {
			t.Errorf("%s: got\n%s\nwant\n%s", exampleName(op), readable(got), want)
		}
		if !bytes.Equal(Encode(nil, got), data) {
			t.Errorf("%s: encoding again changes the bytes", exampleName(op))
		}
	}
}
