package offline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// testTerm is the term of all entries.
const testTerm = 4

// author makes the entries of a log and the state after them.
type author struct {
	t       *testing.T
	machine *fsm.Machine
}

func newAuthor(t *testing.T) *author {
	t.Helper()
	a := &author{t, fsm.NewMachine()}
	a.do(&fsm.SetClusterID{ID: oldCluster}, &fsm.Replica{ServerID: "n1", Instance: "i"})
	return a
}

// do returns the next entry.
func (a *author) do(ops ...fsm.Op) *raft.Log {
	a.t.Helper()
	log := &raft.Log{
		Index: a.machine.Index() + 1, Term: testTerm, Type: raft.LogCommand,
		Data: fsm.Encode(nil, fsm.Entry{NowMS: 1_700_000_000_000, Ops: ops}),
	}
	if applied, ok := a.machine.Apply(log.Index, log.Data).(fsm.Applied); !ok || applied.Rejected != fsm.Accepted {
		a.t.Fatalf("entry %d: %+v", log.Index, applied)
	}
	return log
}

// submit returns the next entry, which stores the next job, with key "key-ID".
func (a *author) submit() *raft.Log {
	a.t.Helper()
	var id fsm.JobID
	a.machine.Read(func(s *fsm.State, _ uint64) { id = s.NextJob() })
	body, err := proto.Marshal(&dtaskv1.TaskBody{})
	if err != nil {
		a.t.Fatal(err)
	}
	b := fsm.NewChunkBuilder(0)
	b.Add("a", 0, nil, body)
	chunk := b.Chunk()
	header, err := proto.Marshal(&dtaskv1.JobHeader{
		Name: fmt.Sprintf("job-%d", id), Priority: dtaskv1.Priority_PRIORITY_NORMAL, OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP,
		Policies: []*dtaskv1.TaskPolicy{{
			Type: "noop", TimeoutMs: 1000, Retry: &dtaskv1.RetryPolicy{}, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE,
		}},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return a.do(&fsm.BeginUpload{ID: id, Key: fmt.Sprintf("key-%d", id), KeyExpires: 1 << 50, Header: header, Total: 1},
		&fsm.AddChunk{Job: id, Chunk: chunk}, &fsm.SealUpload{Job: id, Sum: chunk.Sum(0), Digest: [16]byte{byte(id)}})
}

// founded makes the data directory of n1 with a snapshot of the author's state, as one
// has that was just installed.
func (a *author) founded(kind logstore.Kind) string {
	a.t.Helper()
	path := filepath.Join(a.t.TempDir(), "n1")
	if err := os.Mkdir(path, 0o700); err != nil {
		a.t.Fatal(err)
	}
	err := errors.Join(raftnode.Found(raftnode.Founding{
		Dir: path, Kind: kind, Server: raftnode.Server{ID: "n1", Address: "127.0.0.1:1", Voter: true},
		Index: a.machine.Index(), Term: testTerm, Snapshot: a.machine.Snapshot(),
	}), datadir.Create(path, datadir.NewIdentity("n1", oldCluster)))
	if err != nil {
		a.t.Fatal(err)
	}
	return path
}

// write writes to the stores of a directory, whose replica knows that the entries up to
// an index are committed.
func write(t *testing.T, path string, kind logstore.Kind, committed uint64, f func(*logstore.Store) error) {
	t.Helper()
	contents, err := logstore.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	store, err := logstore.Open(logstore.Config{
		Dir: path, Kind: kind, Contents: contents, HangTimeout: time.Minute, Fatal: func(err error) { t.Error(err) },
		CommitIndex: func() uint64 { return committed },
		Logger:      slog.New(slog.DiscardHandler), RaftLogger: hclog.NewNullLogger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f(store), store.Close()); err != nil {
		t.Fatal(err)
	}
}

// serving is a cluster with some jobs.
type serving struct {
	dtaskv1.UnimplementedJobServiceServer

	jobs map[string]*dtaskv1.Job
}

// GetJob implements dtaskv1.JobServiceServer.
func (s *serving) GetJob(_ context.Context, q *dtaskv1.GetJobRequest) (*dtaskv1.Job, error) {
	if job := s.jobs[q.GetId()]; job != nil {
		return job, nil
	}
	return nil, status.Error(codes.NotFound, "no such job")
}

// serve starts a cluster without jobs and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	dtaskv1.RegisterJobServiceServer(server, &serving{})
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// missingOf lists the jobs of a directory that a cluster without jobs does not have, and
// whether they are unconfirmed.
func missingOf(t *testing.T, path string) (report *MissingReport, jobs string) {
	t.Helper()
	report, err := Missing(t.Context(), path, []string{serve(t)})
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range report.Missing {
		jobs += " " + job.Key
		if job.Unconfirmed {
			jobs += " unconfirmed"
		}
	}
	return report, strings.TrimSpace(jobs)
}

// A replica learns with the next request that its last entries are committed. Killed
// before that, it has jobs that may have been acknowledged.
func TestJobsAfterTheLastCommittedEntryAreListedAsUnconfirmed(t *testing.T) {
	t.Parallel()
	for _, kind := range []logstore.Kind{logstore.Bolt, logstore.WAL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			a := newAuthor(t)
			path := a.founded(kind)
			first := a.submit()
			write(t, path, kind, first.Index-1, func(s *logstore.Store) error { return s.StoreLogs([]*raft.Log{first}) })
			write(t, path, kind, first.Index, func(s *logstore.Store) error {
				return s.StoreLogs([]*raft.Log{a.submit(), a.submit()})
			})
			report, jobs := missingOf(t, path)
			if want := "key-1 key-2 unconfirmed key-3 unconfirmed"; jobs != want || report.Compared != 3 {
				t.Fatalf("%d compared, only here: %s; want %s", report.Compared, jobs, want)
			}
			if report.UpTo != first.Index || report.LastIndex != first.Index+2 {
				t.Errorf("committed up to %d of %d, want %d of %d", report.UpTo, report.LastIndex, first.Index, first.Index+2)
			}
			if err := report.Export(filepath.Join(t.TempDir(), "export")); err != nil {
				t.Fatal(err)
			}
			for _, job := range report.Missing {
				if _, err := os.Stat(job.File); err != nil {
					t.Errorf("job %s was not exported: %v", job.ID, err)
				}
			}
			var text bytes.Buffer
			report.Write(&text)
			for _, want := range []string{"job 1 (job-1) of unknown", "pending here\n", "pending here, unconfirmed\n", "without learning whether they were committed"} {
				if !strings.Contains(text.String(), want) {
					t.Errorf("%q is missing in the text:\n%s", want, &text)
				}
			}
		})
	}
}

// All that a snapshot has is committed, but a replica that was killed right after it
// installed one has not persisted a later committed index yet.
func TestJobsOfASnapshotThatWasJustInstalledAreListed(t *testing.T) {
	t.Parallel()
	for _, kind := range []logstore.Kind{logstore.Bolt, logstore.WAL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			a := newAuthor(t)
			a.submit()
			a.submit()
			path := a.founded(kind)
			write(t, path, kind, 1, (*logstore.Store).StoreCommitted)
			report, jobs := missingOf(t, path)
			if want := "key-1 key-2"; jobs != want || report.Compared != 2 || report.UpTo != a.machine.Index() {
				t.Errorf("%d compared up to %d, only here: %q; want %s", report.Compared, report.UpTo, jobs, want)
			}
			if r, err := Inspect(path); err != nil || r.Committed != a.machine.Index() {
				t.Errorf("inspect: committed up to %d, %v; want %d", r.Committed, err, a.machine.Index())
			}
		})
	}
}

// What is wrong with entries that may not be committed does not hide those that are.
func TestATailThatCannotBeAppliedIsReported(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	path := a.founded(logstore.Bolt)
	first, second := a.submit(), a.submit()
	bad := &raft.Log{Index: second.Index + 1, Term: testTerm, Type: raft.LogCommand, Data: []byte("not an entry")}
	write(t, path, logstore.Bolt, first.Index-1, func(s *logstore.Store) error { return s.StoreLogs([]*raft.Log{first}) })
	write(t, path, logstore.Bolt, first.Index, func(s *logstore.Store) error { return s.StoreLogs([]*raft.Log{second, bad}) })
	report, jobs := missingOf(t, path)
	if want := "key-1 key-2 unconfirmed"; jobs != want || !strings.Contains(report.Unread, fmt.Sprintf("entries from %d on", bad.Index)) {
		t.Errorf("only here: %q, unread: %q; want %s", jobs, report.Unread, want)
	}
}
