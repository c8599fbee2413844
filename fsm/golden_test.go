package fsm

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// go test ./fsm -run 'Released|StateDiagram' -rewrite makes the golden files
// anew. Files of a format that was released are never made anew.
var rewrite = flag.Bool("rewrite", false, "write the golden files instead of comparing with them")

// golden compares with a file in testdata, or writes it.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
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
		t.Errorf("%s: got\n%q\nwant\n%q", path, got, want)
	}
}

// goldenHeader is a JobHeader with the name "j" and two policies, the second at
// most once. It is bytes, as the encoding of messages is not promised.
var goldenHeader = []byte{0x0a, 1, 'j', 0x42, 0, 0x42, 2, 0x40, 2}

// toldHeader is the same with a webhook.
var toldHeader = append(slices.Clone(goldenHeader), "\x4a\x09http://a/"...)

func goldenChunk() *Chunk {
	b := NewChunkBuilder(0)
	b.Add("first", 0, nil, []byte("body"))
	b.Add("second", 1, []uint32{0}, nil)
	b.Add("third", 0, []uint32{0, 1}, []byte{0, 255})
	return b.Chunk()
}

// examples are an operation of each kind, with every field in use.
func examples() []Op {
	sum := goldenChunk().Sum(0)
	digest := [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255}
	held := []HeldAttempt{hold(1, 2, 1, 7), hold(1, 1, 3, 7), hold(300, 70000, 1<<32-1, 1<<32-1)}
	return []Op{
		&SetClusterID{ID: "00112233445566778899aabbccddeeff"},
		&Replica{ServerID: "n2-1", Instance: "5f1c", Replaces: "n2", LowWaterMark: 70000},
		&StartTerm{Term: 300, ServerID: "n1"},
		&BeginUpload{ID: 1, Key: "key", KeyExpires: 1_700_000_000_000, Header: goldenHeader, Total: 3},
		&JobChunk{Job: 1, Chunk: goldenChunk()},
		&SealUpload{Job: 1, Sum: sum, Digest: digest},
		&DropUpload{Job: 129},
		&Assign{Items: []AssignItem{AssignItem(held[0]), AssignItem(held[1]), AssignItem(held[2])}},
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
		&Requeue{Lost: true, Items: held},
		&Lose{Items: held[:1]},
		&Due{Items: []DueItem{held[0].AttemptRef, held[2].AttemptRef, held[1].AttemptRef}},
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
		&ForgetKeys{Keys: []string{"key", "other"}},
		&ForgetJobs{IDs: []JobID{1, 300}},
		&Revive{Job: 1, Tasks: []uint32{0, 2, 70000}},
		&Purge{Job: 300, Tasks: []uint32{1, 1<<32 - 1}},
		&NotifyDeadLetters{Items: []DeadLetterNotification{{ref(1, 2), DeadLetterWebhookNotification}, {ref(300, 1<<32-1), DeadLetterCommandNotification}, {ref(1, 0), DeadLetterWebhookNotification}}},
		&RecordDelivered{Items: []Delivery{{1, true}, {1 << 40, false}}},
		&DrainWorker{ID: 7, Until: 1_700_000_002_000, Reason: "new disk"},
		&UndrainWorker{ID: 300},
		&Checkpoint{HeldAttempt: held[2], Saved: SavedCheckpoint{
			Number: 300, Format: DataCheckpoint, Data: []byte("half"), File: "c/1/2/3-1", Size: 1 << 33, SHA256: bytes.Repeat([]byte{0xcd}, 32),
		}},
		&Update{
			Job: 1, Task: 2, IfVersion: 3, Key: "again", KeyExpires: 1_700_000_000_000, Digest: digest, Set: allFields - 1,
			Priority: 3, MaxRetries: 7, TimeoutMS: 1500, NotBeforeMS: 1_700_000_002_000, Body: []byte{0x2a, 1, 'x'},
		},
		&RememberResults{Items: []RememberItem{{ref(1, 2), 1_700_000_003_000}, {ref(300, 1<<32-1), -1}}},
		&ReuseResults{Tasks: []TaskRef{ref(1, 2), ref(300, 1<<32-1)}},
		&ForgetResults{Keys: []string{"me\x00key", "\x00other"}},
		&JobArray{Job: 1, Chunk: NewArrayChunk(3, Array{
			Name: "map", Policy: 1, Deps: []uint32{0, 2}, Body: []byte("body"), Ranges: []IndexRange{{0, 5, 21}, {70000, 1, 300}}, Items: 321, Chunk: 10,
			MaxParallel: 50, JSON: true,
		}, nil)},
		&Archive{IDs: []JobID{300, 1}, EndedBefore: 1_700_000_004_000},
	}
}

func kindName(op Op) string {
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", op), "*fsm."))
}

// readable is an entry as text, one operation a line.
func readable(e Entry) []byte {
	b := fmt.Appendf(nil, "now %d\n", e.NowMS)
	for _, op := range e.Ops {
		b = fmt.Appendf(b, "%d %s ", op.kind(), kindName(op))
		if c, ok := op.(*JobChunk); ok {
			b = fmt.Appendf(b, "job %d first %d\n", c.Job, c.Chunk.First)
			for i := range uint32(c.Chunk.Len()) {
				v := c.Chunk.at(i)
				b = fmt.Appendf(b, "  %q policy %d body %q after", v.name, v.policy, v.body)
				v.eachDep(func(dep uint32) { b = fmt.Appendf(b, " %d", dep) })
				b = append(b, '\n')
			}
			continue
		}
		if o, ok := op.(*JobArray); ok {
			text, err := json.Marshal(o.Chunk.array)
			if err != nil {
				panic(err)
			}
			b = fmt.Appendf(b, "job %d first %d part %d %s\n", o.Job, o.Chunk.First, o.Chunk.part, text)
			for i := range o.Chunk.off {
				b = fmt.Appendf(b, "  %q\n", o.Chunk.item(uint32(i)))
			}
			continue
		}
		text, err := json.Marshal(op)
		if err != nil {
			panic(err)
		}
		b = append(append(b, text...), '\n')
	}
	return b
}

func TestEveryKindOfOperationHasAnExample(t *testing.T) {
	t.Parallel()
	all := examples()
	if len(all) != int(opCount)-1 {
		t.Fatalf("%d examples of %d kinds", len(all), opCount-1)
	}
	for i, op := range all {
		if want := opKind(i + 1); op.kind() != want {
			t.Errorf("example %d is of kind %d, want %d", i, op.kind(), want)
		}
		if fresh := newOp(op.kind()); fresh == nil || fmt.Sprintf("%T", fresh) != fmt.Sprintf("%T", op) {
			t.Errorf("newOp(%d) is %T, want %T", op.kind(), fresh, op)
		}
		for _, file := range []string{goldenEntry(op) + ".bin", goldenEntry(op) + ".txt", filepath.Join("testdata", "fuzz", "FuzzDecodeEntry", kindName(op))} {
			if _, err := os.Stat(file); err != nil && !*rewrite {
				t.Error(err)
			}
		}
	}
	for _, k := range []opKind{0, opCount, 255} {
		if op := newOp(k); op != nil {
			t.Errorf("newOp(%d) is %T, want none", k, op)
		}
	}
}

func goldenEntry(op Op) string { return filepath.Join("testdata", "entry_v1_"+kindName(op)) }

func TestReleasedEntriesMeanTheSameForEver(t *testing.T) {
	t.Parallel()
	for _, op := range examples() {
		t.Run(kindName(op), func(t *testing.T) {
			t.Parallel()
			e := Entry{NowMS: 1_700_000_000_123, Ops: []Op{op}}
			golden(t, goldenEntry(op)+".bin", Compact{}.Encode(nil, e))
			data, err := os.ReadFile(goldenEntry(op) + ".bin")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, goldenEntry(op)+".txt", readable(mustDecode(t, data)))
			if *rewrite {
				seed := fmt.Appendf(nil, "go test fuzz v1\n[]byte(%q)\n", data)
				golden(t, filepath.Join("testdata", "fuzz", "FuzzDecodeEntry", kindName(op)), seed)
			}
		})
	}
}

// goldenLog makes a state with something of everything in it.
func goldenLog() []Entry {
	all := examples()
	join := func(id WorkerID, name string) *RegisterWorker {
		return &RegisterWorker{ID: id, Name: name, Incarnation: "i", Slots: 2, Labels: []Label{{"zone", "a"}}, Resources: []Resource{{"cpu", 1000}}}
	}
	give := func(i, attempt uint32) *Assign {
		return &Assign{Items: []AssignItem{AssignItem(hold(1, i, attempt, 2))}}
	}
	entries := [][]Op{
		all[:6],
		{join(1, "w1"), join(2, "w2"), &MarkWorkerDown{ID: 1, Reason: "silent"}, &DrainWorker{ID: 1, Until: 9000, Reason: "new disk"}},
		{give(0, 1)},
		{failed(hold(1, 0, 1, 2), NextRetry)},
		{&Due{Items: []DueItem{att(1, 0, 1)}}, give(0, 2)},
		{&Complete{Items: []CompleteItem{{HeldAttempt: hold(1, 0, 2, 2), DurationMS: 3, Result: []byte("r"), OutputSize: 9, OutputSHA256: make([]byte, 32)}}}},
		{give(1, 1), &RecordStart{Items: []HeldAttempt{hold(1, 1, 1, 2)}}},
		{&BeginUpload{ID: 2, Key: "upload", KeyExpires: 7, Header: goldenHeader, Total: 4}, &JobChunk{Job: 2, Chunk: goldenChunk()}},
		{&BeginUpload{ID: 3, Key: "done", KeyExpires: 7, Header: goldenHeader, Total: 3}, &JobChunk{Job: 3, Chunk: goldenChunk()}},
		{&SealUpload{Job: 3, Sum: goldenChunk().Sum(0)}, &CancelJob{Job: 3, Reason: "not needed"}},
		{&BeginUpload{ID: 4, Key: "letters", KeyExpires: 7, Header: goldenHeader, Total: 3}, &JobChunk{Job: 4, Chunk: goldenChunk()}},
		{&SealUpload{Job: 4, Sum: goldenChunk().Sum(0)}, &Assign{Items: []AssignItem{AssignItem(hold(4, 0, 1, 2))}}},
		{&Requeue{Lost: true, Items: []HeldAttempt{hold(4, 0, 1, 2)}}, &Assign{Items: []AssignItem{AssignItem(hold(4, 0, 2, 2))}}},
		{failed(hold(4, 0, 2, 2), NextDead), &Revive{Job: 4}, &Assign{Items: []AssignItem{AssignItem(hold(4, 0, 3, 2))}}},
		{failed(hold(4, 0, 3, 2), NextRetry), &CancelTask{Task: ref(4, 0), Reason: "enough"}},
		{&BeginUpload{ID: 5, Key: "told", KeyExpires: 7, Header: toldHeader, Total: 3}, &JobChunk{Job: 5, Chunk: goldenChunk()}},
		{&SealUpload{Job: 5, Sum: goldenChunk().Sum(0)}, &Assign{Items: []AssignItem{AssignItem(hold(5, 0, 1, 2))}}},
		{failed(hold(5, 0, 1, 2), NextDead), &NotifyDeadLetters{Items: []DeadLetterNotification{{ref(5, 0), DeadLetterCommandNotification}}}},
		{&RecordDelivered{Items: []Delivery{{1, true}}}},
		{&Checkpoint{HeldAttempt: hold(1, 1, 1, 2), Saved: SavedCheckpoint{Number: 2, Format: DirectoryCheckpoint, Data: []byte("half"), Size: 4}}},
		{&Update{Job: 1, Task: 2, Key: "again", KeyExpires: 9, Digest: [16]byte{5}, Set: allFields - 1, Priority: 3, MaxRetries: 7, TimeoutMS: 9, NotBeforeMS: 5000, Body: []byte{0x2a, 1, 'x'}}},
		{&Update{Job: 1, WholeJob: true, Set: SetPriority | SetTimeout, Priority: 1, TimeoutMS: 8}},
	}
	items := NewArrayChunk(0, Array{Name: "each", Body: []byte("body"), Items: 3, Chunk: 2, MaxParallel: 1}, [][]byte{[]byte("1"), []byte("2")})
	rest := NewItemsChunk(1, 1, 2, [][]byte{[]byte(`"three"`)})
	whole := NewArrayChunk(2, Array{Name: "all", Policy: 1, Deps: []uint32{0}, Ranges: []IndexRange{{5, 5, 600}}, Items: 600, Chunk: 1}, nil)
	entries = append(entries, []Op{
		&BeginUpload{ID: 6, Key: "array", KeyExpires: 7, Header: goldenHeader, Total: 602},
		AddChunk(6, items), AddChunk(6, rest), AddChunk(6, whole), &SealUpload{Job: 6, Sum: whole.Sum(rest.Sum(items.Sum(0)))},
		&Assign{Items: []AssignItem{AssignItem(hold(6, 1, 1, 2))}}, complete(hold(6, 1, 1, 2)),
	})
	log := make([]Entry, len(entries))
	for i, ops := range entries {
		log[i] = Entry{NowMS: int64(100 * (i + 1)), Ops: ops}
	}
	return log
}

func TestReleasedSnapshotsAreReadForEver(t *testing.T) {
	t.Parallel()
	s := New()
	for i, e := range goldenLog() {
		if r := s.Apply(e, nil); r != Accepted {
			t.Fatalf("entry %d: %v", i, r)
		}
	}
	file := filepath.Join("testdata", "snapshot_v1.bin")
	golden(t, file, snapshotOf(t, s))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	old := restored(t, data)
	golden(t, filepath.Join("testdata", "snapshot_v1.txt"), describeState(old))
	if !bytes.Equal(snapshotOf(t, old), data) {
		t.Error("writing what was read gives other bytes")
	}
	if *rewrite {
		for target, seed := range map[string][]byte{"FuzzReadSnapshot": data, "FuzzReadFrames": unframed(data)} {
			golden(t, filepath.Join("testdata", "fuzz", target, "golden"), fmt.Appendf(nil, "go test fuzz v1\n[]byte(%q)\n", seed))
		}
	}
}

// describeState is a state as text.
func describeState(s *State) []byte {
	b := fmt.Appendf(nil, "digest %#x entries %d\n%+v\n", s.Digest(), s.Entries(), stateFacts(s))
	for j := range s.Jobs(0) {
		j.Header, j.updates = nil, nil
		b = fmt.Appendf(b, "%+v\n", j)
		for i := range j.Total {
			v, _ := s.Task(ref(j.ID, i))
			b = fmt.Appendf(b, "  %q %+v after %v, left %+v, history %+v\n",
				s.Name(ref(j.ID, i)), v, s.Dependencies(ref(j.ID, i)), s.Result(ref(j.ID, i)), s.History(ref(j.ID, i)))
		}
	}
	return b
}
