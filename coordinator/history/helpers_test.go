package history

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/leak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(leak.Patient{M: m}) }

// shape describes a job of a test.
type shape struct {
	submitted   int64 // ms; filled in
	name, owner string
	namespace   string
	labels      map[string]string
	tasks       int
	body        int  // bytes of each task
	run         bool // of a schedule: with MinTemplate of tasks, it shares them
	state       fsm.JobState
}

// clusterLog is a log that several replicas can apply.
type clusterLog struct {
	tb      testing.TB
	leader  *fsm.Machine // without a history
	entries [][]byte
	now     int64
	model   map[fsm.JobID]shape // all submitted jobs
}

func newLog(tb testing.TB) *clusterLog {
	tb.Helper()
	l := &clusterLog{tb: tb, leader: fsm.NewMachine(), now: 1_700_000_000_000, model: make(map[fsm.JobID]shape)}
	l.do(&fsm.SetClusterID{ID: "0123456789abcdef0123456789abcdef"}, &fsm.RegisterWorker{ID: 1, Name: "w1", Incarnation: "i", Slots: 1})
	return l
}

// do appends an entry that must be accepted.
func (l *clusterLog) do(ops ...fsm.Op) {
	l.now++
	data := fsm.Encode(nil, fsm.Entry{NowMS: l.now, Ops: ops})
	l.entries = append(l.entries, data)
	applied, ok := l.leader.Apply(uint64(len(l.entries)), data).(fsm.Applied)
	if !ok || applied.Rejected != fsm.Accepted {
		l.tb.Fatalf("entry %d: %+v", len(l.entries), applied)
	}
}

func (l *clusterLog) index() uint64 { return uint64(len(l.entries)) }

// submit submits a job and finishes it.
func (l *clusterLog) submit(s shape) fsm.JobID {
	var id fsm.JobID
	l.leader.Read(func(st *fsm.State, _ uint64) { id = st.NextJob() })
	h := &dtaskv1.JobHeader{
		Name: s.name, Owner: s.owner, Namespace: s.namespace, Labels: s.labels, Policies: []*dtaskv1.TaskPolicy{{Type: "t", TimeoutMs: 1000}},
	}
	if s.run {
		h.Run = &dtaskv1.ScheduledRun{Schedule: s.name, ScheduleId: 1, TickMs: l.now}
	}
	header, err := proto.MarshalOptions{Deterministic: true}.Marshal(h)
	if err != nil {
		l.tb.Fatal(err)
	}
	s.tasks = max(s.tasks, 1)
	ops, sum := upload(id, header, s)
	l.do(append(ops, &fsm.SealUpload{Job: id, Sum: sum, Digest: [16]byte{byte(id)}})...)
	s.submitted = l.now
	l.end(id, s)
	l.model[id] = s
	return id
}

// upload returns the operations that upload a job, and the sum of its chunks.
func upload(id fsm.JobID, header []byte, s shape) (ops []fsm.Op, sum uint32) {
	ops = []fsm.Op{&fsm.BeginUpload{ID: id, Key: fmt.Sprintf("key-%d", id), Header: header, Total: uint32(s.tasks)}}
	for first := 0; first < s.tasks; first += 1000 {
		b := fsm.NewChunkBuilder(uint32(first))
		for i := first; i < min(first+1000, s.tasks); i++ {
			b.Add(fmt.Sprintf("t%d", i), 0, nil, bytes.Repeat([]byte{byte(i)}, s.body))
		}
		c := b.Chunk()
		sum = c.Sum(sum)
		ops = append(ops, &fsm.AddChunk{Job: id, Chunk: c})
	}
	return ops, sum
}

func (l *clusterLog) end(id fsm.JobID, s shape) {
	assign, done, failed := new(fsm.Assign), new(fsm.Complete), new(fsm.Fail)
	for i := range s.tasks {
		h := fsm.HeldAttempt{AttemptRef: fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: id, Index: uint32(i)}, Attempt: 1}, Worker: 1}
		assign.Items = append(assign.Items, fsm.AssignItem(h))
		done.Items = append(done.Items, fsm.CompleteItem{HeldAttempt: h, DurationMS: 1, Result: fmt.Appendf(nil, "result %d/%d", id, i)})
		failed.Items = append(failed.Items, fsm.FailItem{HeldAttempt: h, Next: fsm.NextFailed, Error: fmt.Sprintf("error %d/%d", id, i)})
	}
	switch s.state {
	case fsm.JobCompleted:
		l.do(assign, done)
	case fsm.JobFailed:
		l.do(assign, failed)
	case fsm.JobCancelled:
		l.do(&fsm.CancelJob{Job: id, Reason: "no need"})
	case fsm.JobUploading, fsm.JobPending, fsm.JobRunning:
	}
}

// replica applies the log and has a history.
type replica struct {
	*History

	log     *clusterLog
	machine *fsm.Machine
	applied int
	cancel  context.CancelFunc
	ended   chan error
}

func (l *clusterLog) replica(cfg Config) *replica {
	l.tb.Helper()
	return l.recorded(cfg, nil)
}

// summaryOf is the summary of a job in these tests: every second job has one, and some
// are longer than a head.
func summaryOf(id fsm.JobID) []byte {
	if id%2 == 0 {
		return nil
	}
	return bytes.Repeat(fmt.Appendf(nil, "summary of job %d", id), 1+int(id%10/9)*maxInline/10)
}

// recorded is replica with a function that is called after each transaction.
func (l *clusterLog) recorded(cfg Config, committed func()) *replica {
	l.tb.Helper()
	if cfg.Path == "" {
		cfg.Path = filepath.Join(l.tb.TempDir(), "history.db")
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	if cfg.FetchInterval == 0 {
		cfg.FetchInterval = 5 * time.Millisecond
	}
	cfg.Summarize = func(a *fsm.ArchivedJob) []byte { return summaryOf(a.ID()) }
	h, err := Open(cfg)
	if err != nil {
		l.tb.Fatal(err)
	}
	h.file.committed = committed
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{History: h, log: l, machine: fsm.NewMachine(), cancel: cancel, ended: make(chan error, 1)}
	r.machine.ArchiveTo(h)
	go func() { r.ended <- h.Run(ctx) }()
	l.tb.Cleanup(r.stop)
	return r
}

// stop stops the history as a crash would: pending jobs are lost.
func (r *replica) stop() {
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.ended; err != nil {
		r.log.tb.Error(err)
	}
}

// apply applies the rest of the log.
func (r *replica) apply() *replica {
	for ; r.applied < len(r.log.entries); r.applied++ {
		if a, ok := r.machine.Apply(uint64(r.applied+1), r.log.entries[r.applied]).(fsm.Applied); !ok || a.Rejected != fsm.Accepted {
			r.log.tb.Fatalf("entry %d: %+v", r.applied+1, a)
		}
	}
	return r
}

// sync writes all applied entries to the file.
func (r *replica) sync() *replica {
	r.log.tb.Helper()
	if err := r.Sync(r.log.tb.Context(), uint64(r.applied)); err != nil {
		r.log.tb.Fatal(err)
	}
	return r
}

// restore replaces a part of the log by a snapshot.
func (r *replica) restore(snapshot []byte) *replica {
	r.log.tb.Helper()
	if err := r.machine.Restore(bytes.NewReader(snapshot)); err != nil {
		r.log.tb.Fatal(err)
	}
	r.applied = int(r.machine.Index())
	return r
}

func (r *replica) snapshot() []byte {
	var b bytes.Buffer
	if err := r.machine.Snapshot().Persist(&b); err != nil {
		r.log.tb.Fatal(err)
	}
	return b.Bytes()
}

// list lists the matching jobs of state and history, as the API does.
func (r *replica) list(q Query) []fsm.JobID {
	r.log.tb.Helper()
	st, _ := r.machine.Fork()
	found := make(map[fsm.JobID]bool)
	for job := range st.Jobs(q.Below) {
		if q.Match(&job) {
			found[job.ID] = true
		}
	}
	last := fsm.JobID(1 << 62)
	for {
		rest, err := r.List(r.log.tb.Context(), q, func(head fsm.Head) bool {
			if head.ID >= last {
				r.log.tb.Errorf("job %d is listed after job %d", head.ID, last)
			}
			last = head.ID
			if _, there := st.Job(head.ID); !there {
				found[head.ID] = true
			}
			return true
		})
		if err != nil {
			r.log.tb.Fatal(err)
		}
		if rest == 0 {
			break
		}
		q.Below = rest
	}
	return slices.Sorted(maps.Keys(found))
}

// want returns what the model lists.
func (l *clusterLog) want(q Query) []fsm.JobID {
	var ids []fsm.JobID
	for id, s := range l.model {
		job := fsm.Job{ID: id, State: s.state, SubmittedMS: s.submitted, Header: &dtaskv1.JobHeader{Name: s.name, Owner: s.owner, Namespace: s.namespace, Labels: s.labels}}
		if q.Match(&job) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// check compares everything that a replica shows with the model, which forgets nothing.
func (r *replica) check(queries ...Query) {
	r.log.tb.Helper()
	for _, q := range append(queries, Query{}) {
		if got, want := r.list(q), r.log.want(q); !slices.Equal(got, want) {
			r.log.tb.Fatalf("%+v lists %v, want %v", q, got, want)
		}
	}
	for id, s := range r.log.model {
		st, _ := r.machine.Fork()
		if _, there := st.Job(id); !there {
			if ok, err := r.Adopt(st, id); !ok || err != nil {
				r.log.tb.Fatalf("job %d is missing: %v", id, err)
			}
			if head, ok, err := r.Find(id); !ok || err != nil || head.State != s.state || head.Header.GetName() != s.name {
				r.log.tb.Fatalf("head of job %d: %+v, %v, %v", id, head, ok, err)
			}
			pending := r.pendingJob(id) != nil
			head, summary, err := r.Summary(id)
			if err != nil || !pending && (head.ID != id || !bytes.Equal(summary, summaryOf(id))) {
				r.log.tb.Fatalf("job %d has a summary of %d bytes, %v", id, len(summary), err)
			}
		}
		job, ok := st.Job(id)
		if !ok || job.State != s.state || int(job.Total) != s.tasks {
			r.log.tb.Fatalf("job %d is %+v", id, job)
		}
		if s.state != fsm.JobCompleted {
			continue
		}
		for i := range s.tasks {
			ref := fsm.TaskRef{Job: id, Index: uint32(i)}
			if got, want := string(st.Result(ref).Data), fmt.Sprintf("result %d/%d", id, i); got != want {
				r.log.tb.Fatalf("task %d/%d has result %q, want %q", id, i, got, want)
			}
			if got := st.Body(ref); len(got) != s.body {
				r.log.tb.Fatalf("task %d/%d has a body of %d bytes, want %d", id, i, len(got), s.body)
			}
		}
	}
}

// until waits for a condition.
func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(end) {
			tb.Fatalf("not within 2 min: %s", what)
		}
		timer := time.NewTimer(2 * time.Millisecond)
		<-timer.C
	}
}

// Fetch implements Source.
func (r *replica) Fetch(ctx context.Context, after Position, to uint64, take func(c Chunk, complete bool) error) (bool, error) {
	return r.Serve(ctx, after, to, take)
}

// from returns a Config that fetches from replicas, which are all members of the
// cluster.
func from(rs ...*replica) Config {
	return Config{Sources: func(context.Context) ([]Source, bool) {
		var list []Source
		for _, r := range rs {
			list = append(list, r)
		}
		return list, true
	}}
}
