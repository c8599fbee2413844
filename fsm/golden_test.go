package fsm

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// go test ./fsm -run 'Released|StateDiagram' -rewrite writes the golden files.
// Files of a released format are never rewritten.
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

// readable formats an entry as text, one operation per line.
func readable(e Entry) []byte {
	b := fmt.Appendf(nil, "now %d\n", e.NowMS)
	for _, op := range e.Ops {
		b = fmt.Appendf(b, "%d %s ", op.kind(), operations[op.kind()].name)
		if o, ok := op.(*AddChunk); ok {
			b = readableChunk(b, o)
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

func readableChunk(b []byte, o *AddChunk) []byte {
	c := o.Chunk
	if !c.ofArray {
		b = fmt.Appendf(b, "job %d first %d\n", o.Job, c.First)
		for i := range uint32(c.Len()) {
			v := c.at(i)
			b = fmt.Appendf(b, "  %q policy %d body %q after", v.name, v.policy, v.body)
			v.eachDep(func(dep uint32, when Condition) {
				if b = fmt.Appendf(b, " %d", dep); when != WhenCompleted {
					b = fmt.Appendf(b, "(condition %d)", when)
				}
			})
			b = append(b, '\n')
		}
		return b
	}
	text, err := json.Marshal(c.array)
	if err != nil {
		panic(err)
	}
	b = fmt.Appendf(b, "job %d first %d part %d %s\n", o.Job, c.First, c.part, text)
	for i := range c.off {
		b = fmt.Appendf(b, "  %q\n", c.item(uint32(i)))
	}
	return b
}

// The golden file has the bytes and the meaning of an entry with each example.
func TestReleasedEntriesKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	var b []byte
	for _, op := range examples() {
		data := Encode(nil, Entry{NowMS: 1_700_000_000_123, Ops: []Op{op}})
		b = fmt.Appendf(b, "# %s\n%x\n%s\n", exampleName(op), data, readable(mustDecode(t, data)))
	}
	golden(t, filepath.Join("testdata", "entries_v3.txt"), b)
}

// goldenLog returns a log whose state has something of every kind.
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
		{&Due{Items: []AttemptRef{att(1, 0, 1)}}, give(0, 2)},
		{&Complete{Items: []CompleteItem{{HeldAttempt: hold(1, 0, 2, 2), DurationMS: 3, Result: []byte("r"), OutputSize: 9, OutputSHA256: make([]byte, 32)}}}},
		{give(1, 1), &RecordStart{Items: []HeldAttempt{hold(1, 1, 1, 2)}}},
		{&BeginUpload{ID: 2, Key: "upload", KeyExpires: 7, Header: goldenHeader, Total: 4}, &AddChunk{Job: 2, Chunk: goldenChunk()}},
		{&BeginUpload{ID: 3, Key: "done", KeyExpires: 7, Header: goldenHeader, Total: 3}, &AddChunk{Job: 3, Chunk: goldenChunk()}},
		{&SealUpload{Job: 3, Sum: goldenChunk().Sum(0)}, &CancelJob{Job: 3, Reason: "not needed"}},
		{&BeginUpload{ID: 4, Key: "letters", KeyExpires: 7, Header: goldenHeader, Total: 3}, &AddChunk{Job: 4, Chunk: goldenChunk()}},
		{&SealUpload{Job: 4, Sum: goldenChunk().Sum(0)}, &Assign{Items: []AssignItem{AssignItem(hold(4, 0, 1, 2))}}},
		{&RequeueLost{Items: []HeldAttempt{hold(4, 0, 1, 2)}}, &Assign{Items: []AssignItem{AssignItem(hold(4, 0, 2, 2))}}},
		{failed(hold(4, 0, 2, 2), NextDead), &Revive{Job: 4, Precondition: Precondition{Key: "retry", KeyExpires: 9, Digest: [16]byte{6}}}, &Assign{Items: []AssignItem{AssignItem(hold(4, 0, 3, 2))}}},
		{failed(hold(4, 0, 3, 2), NextRetry), &CancelTask{Task: ref(4, 0), Reason: "enough"}},
		{&BeginUpload{ID: 5, Key: "told", KeyExpires: 7, Header: webhookHeader, Total: 3}, &AddChunk{Job: 5, Chunk: goldenChunk()}},
		{&SealUpload{Job: 5, Sum: goldenChunk().Sum(0)}, &Assign{Items: []AssignItem{AssignItem(hold(5, 0, 1, 2))}}},
		{failed(hold(5, 0, 1, 2), NextDead), &NotifyDeadLetters{Items: []DeadLetterNotification{{ref(5, 0), DeadLetterCommandNotification}}}},
		{&RecordDelivered{Items: []Delivery{{1, true}}}},
		{&Checkpoint{HeldAttempt: hold(1, 1, 1, 2), Saved: SavedCheckpoint{Number: 2, Format: DirectoryCheckpoint, Data: []byte("half"), Size: 4}}},
		{&Update{Job: 1, Task: 2, Precondition: Precondition{Key: "again", KeyExpires: 9, Digest: [16]byte{5}}, Set: allFields - 1, Priority: 3, MaxRetries: 7, TimeoutMS: 9, NotBeforeMS: 5000, Body: []byte{0x2a, 1, 'x'}}},
		{&Update{Job: 1, WholeJob: true, Set: SetPriority | SetTimeout, Priority: 1, TimeoutMS: 8}},
	}
	items := NewArrayChunk(0, Array{Name: "each", Body: []byte("body"), Items: 3, Chunk: 2, MaxParallel: 1}, [][]byte{[]byte("1"), []byte("2")})
	rest := NewItemsChunk(1, 1, 2, [][]byte{[]byte(`"three"`)})
	whole := NewArrayChunk(2, Array{Name: "all", Policy: 1, Deps: []uint32{0}, Ranges: []IndexRange{{5, 5, 600}}, Items: 600, Chunk: 1}, nil)
	entries = append(entries, []Op{
		&BeginUpload{ID: 6, Key: "array", KeyExpires: 7, Header: goldenHeader, Total: 602},
		&AddChunk{Job: 6, Chunk: items}, &AddChunk{Job: 6, Chunk: rest}, &AddChunk{Job: 6, Chunk: whole}, &SealUpload{Job: 6, Sum: whole.Sum(rest.Sum(items.Sum(0)))},
		&Assign{Items: []AssignItem{AssignItem(hold(6, 1, 1, 2))}}, complete(hold(6, 1, 1, 2)),
	})
	conditional := conditionalChunk()
	entries = append(entries, []Op{
		&BeginUpload{ID: 7, Key: "conditions", KeyExpires: 7, Header: goldenHeader, Total: 3}, &AddChunk{Job: 7, Chunk: conditional}, &SealUpload{Job: 7, Sum: conditional.Sum(0)},
		&Assign{Items: []AssignItem{AssignItem(hold(7, 0, 1, 2))}}, complete(hold(7, 0, 1, 2)),
	})
	waiting := needing(plan(nil), need(1), need(6, needEnded), need(3, needFailed))
	failing := needing(plan(nil), need(5))
	entries = append(entries, slices.Concat(waiting.submit(8, "waits", 1), failing.submit(9, "needs a failed job", 1)))
	log := make([]Entry, len(entries))
	for i, ops := range entries {
		log[i] = Entry{NowMS: int64(100 * (i + 1)), Ops: ops}
	}
	return log
}

func TestReleasedSnapshotsAreReadForever(t *testing.T) {
	t.Parallel()
	readsReleasedSnapshot(t, "snapshot_v3", "golden", goldenLog(), describeState)
}

// A cluster whose level was set has one frame more.
func TestReleasedSnapshotsWithALevelAreReadForever(t *testing.T) {
	t.Parallel()
	s := New()
	if r := s.Apply(Entry{NowMS: 100, Ops: []Op{&SetClusterID{ID: "c0ffee"}, &SetLevel{Level: 1, Held: true}}}, nil); r != Accepted {
		t.Fatal(r)
	}
	file := filepath.Join("testdata", "snapshot_v3_level.bin")
	golden(t, file, snapshotOf(t, s))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if old := restored(t, data); old.Level() != 1 || !old.LevelHeld() || !bytes.Equal(snapshotOf(t, old), data) {
		t.Errorf("got level %d, held %v, or other bytes", old.Level(), old.LevelHeld())
	}
}

// A replica that replays entries after an upgrade must agree with one whose snapshot an
// earlier build wrote: replicas whose digests differ stop.
func TestEntriesOfEarlierBuildsKeepTheirDigest(t *testing.T) {
	t.Parallel()
	const entries, want = 24, 0x85fab96b83208f0f // computed before clusters had levels
	s := New()
	for _, e := range goldenLog()[:entries] {
		s.Apply(e, nil)
	}
	if got := s.Digest(); got != want {
		t.Errorf("the first %d entries have the digest %#x, want %#x", entries, got, uint64(want))
	}
}

// describeState formats a state as text.
func describeState(s *State) []byte {
	b := fmt.Appendf(nil, "digest %#x entries %d\n%+v\n", s.Digest(), s.Entries(), stateFacts(s))
	for j := range s.Jobs(0) {
		b = describeJob(b, s, j)
	}
	return b
}

// describeJob appends what can be read of a job as text.
func describeJob(b []byte, s *State, j Job) []byte {
	j.Header, j.updates = nil, nil
	b = fmt.Appendf(b, "%+v\n", j)
	for i := range j.Total {
		v, _ := s.Task(ref(j.ID, i))
		b = fmt.Appendf(b, "  %q %+v after %v, left %+v, history %+v\n",
			s.Name(ref(j.ID, i)), v, s.Dependencies(ref(j.ID, i)), s.Result(ref(j.ID, i)), s.History(ref(j.ID, i)))
	}
	return b
}

// readsReleasedSnapshot checks that a log still gives the bytes of the released snapshot with a
// name, and that this snapshot is read and written again without a difference. describe formats
// the state that was read, with what the log is about. The seeds of fuzz targets have a name, too.
func readsReleasedSnapshot(t *testing.T, name, fuzzSeed string, log []Entry, describe func(*State) []byte) {
	t.Helper()
	s := New()
	for i, e := range log {
		if r := s.Apply(e, nil); r != Accepted {
			t.Fatalf("entry %d: %v", i, r)
		}
	}
	file := filepath.Join("testdata", name)
	golden(t, file+".bin", snapshotOf(t, s))
	data, err := os.ReadFile(file + ".bin")
	if err != nil {
		t.Fatal(err)
	}
	old := restored(t, data)
	golden(t, file+".txt", describe(old))
	if !bytes.Equal(snapshotOf(t, old), data) {
		t.Error("writing the restored state changes the bytes")
	}
	if *rewrite {
		for target, seed := range map[string][]byte{"FuzzReadSnapshot": data, "FuzzReadFrames": unframed(data)} {
			golden(t, filepath.Join("testdata", "fuzz", target, fuzzSeed), fmt.Appendf(nil, "go test fuzz v1\n[]byte(%q)\n", seed))
		}
	}
}
