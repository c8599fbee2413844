package logstore

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// cutBackend makes a process that is killed after a number of writes: later ones fail.
type cutBackend struct {
	Backend
	left atomic.Int64 // writes
}

var errCut = errors.New("the process was killed")

func (b *cutBackend) write(do func() error) error {
	if b.left.Add(-1) < 0 {
		return errCut
	}
	return do()
}

func (b *cutBackend) Set(key, value []byte) error {
	return b.write(func() error { return b.Backend.Set(key, value) })
}

func (b *cutBackend) StoreLogs(logs []*raft.Log) error {
	return b.write(func() error { return b.Backend.StoreLogs(logs) })
}

// voter is a replica that runs raft on a data directory and votes for others.
type voter struct {
	store     *Store
	backend   *cutBackend
	raft      *raft.Raft
	transport *raft.InmemTransport
	killed    chan struct{} // closed when a write failed
}

// openVoter opens the store of a data directory.
func openVoter(t *testing.T, dir string, kind Kind) *voter {
	t.Helper()
	contents, err := Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	v := &voter{backend: &cutBackend{}, killed: make(chan struct{})}
	v.backend.left.Store(math.MaxInt64)
	var once sync.Once
	v.store, err = Open(Config{
		Dir: dir, Kind: kind, Contents: contents, HadEntries: true, HangTimeout: testTimeout,
		Fatal: func(error) { once.Do(func() { close(v.killed) }) },
		Wrap: func(b Backend) Backend {
			v.backend.Backend = b
			return v.backend
		},
		Logger: slog.New(slog.DiscardHandler), RaftLogger: hclog.NewNullLogger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// startVoter starts raft on a data directory. The process is killed after a number of
// writes from then on.
func startVoter(t *testing.T, dir string, kind Kind, writes int64) *voter {
	t.Helper()
	v := openVoter(t, dir, kind)
	v.store.RaftStarting()
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = "self", hclog.NewNullLogger()
	conf.HeartbeatTimeout, conf.ElectionTimeout = time.Hour, time.Hour // it never stands itself
	_, v.transport = raft.NewInmemTransportWithTimeout("self", testTimeout)
	var err error
	if v.raft, err = raft.NewRaft(conf, noMachine{}, v.store, v.store, raft.NewInmemSnapshotStore(), v.transport); err != nil {
		t.Fatal(err)
	}
	v.backend.left.Store(writes)
	return v
}

// vote asks for a vote in term 3 and reports whether it was granted; a killed process
// does not answer.
func (v *voter) vote(t *testing.T, candidate string, lastIndex, lastTerm uint64) (granted bool) {
	t.Helper()
	_, from := raft.NewInmemTransportWithTimeout(raft.ServerAddress(candidate), testTimeout)
	from.Connect("self", v.transport)
	answers := make(chan bool, 1)
	go func() {
		var resp raft.RequestVoteResponse
		err := from.RequestVote("self", "self", &raft.RequestVoteRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(candidate), Addr: []byte(candidate)},
			Term:      3, LastLogIndex: lastIndex, LastLogTerm: lastTerm,
		}, &resp)
		answers <- err == nil && resp.Granted
	}()
	select {
	case granted = <-answers:
	case <-v.killed:
	}
	return granted
}

// stop ends raft and the store, as the end of the process does.
func (v *voter) stop(t *testing.T) {
	t.Helper()
	if err := errors.Join(v.raft.Shutdown().Error(), v.transport.Close(), v.store.Close()); err != nil {
		t.Error(err)
	}
}

// noMachine is a state machine without state.
type noMachine struct{}

func (noMachine) Apply(*raft.Log) any                 { return nil }
func (noMachine) Snapshot() (raft.FSMSnapshot, error) { return nil, errCut }
func (noMachine) Restore(io.ReadCloser) error         { return nil }

// TestACrashWhileVotingLeavesTheOldVoteOrTheNewOne kills a replica after each of the
// writes that a vote takes. It had voted for another candidate in the term before,
// whose log is shorter than its own by now: this one must not get its vote in the new
// term, and a vote that was granted must be remembered.
func TestACrashWhileVotingLeavesTheOldVoteOrTheNewOne(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Bolt, WAL} {
		past := t.TempDir()
		s := openVoter(t, past, kind).store
		servers := raft.Configuration{Servers: []raft.Server{{ID: "self", Address: "self"}, {ID: "old", Address: "old"}, {ID: "new", Address: "new"}}}
		if err := errors.Join(s.Bootstrap(servers), s.StoreLogs(entries(2, 4)), s.SetUint64(keyTerm, 2),
			s.SetUint64(keyVoteTerm, 2), s.Set(keyVoteCandidate, []byte("old")), s.Close()); err != nil {
			t.Fatal(err)
		}
		for writes := range int64(4) {
			t.Run(fmt.Sprintf("%s, killed after %d writes", kind, writes), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(past)); err != nil {
					t.Fatal(err)
				}
				v := startVoter(t, dir, kind, writes)
				granted := v.vote(t, "new", 5, 2)
				v.stop(t)
				if want := writes >= 2; granted != want { // the term, then the vote
					t.Fatalf("the vote was granted: %t, want %t", granted, want)
				}
				v = startVoter(t, dir, kind, math.MaxInt64)
				defer v.stop(t)
				if v.vote(t, "old", 1, 1) {
					t.Error("a candidate with an older log got the vote because of its earlier one")
				}
				if got := v.vote(t, "new", 5, 2); !got {
					t.Error("the candidate that asked first did not get the vote in the end")
				}
			})
		}
	}
}

func TestAVoteIsReadAsRaftStoredIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openNew(t, dir, func(*Config) {})
	if _, err := s.GetUint64(keyVoteTerm); err == nil || err.Error() != "not found" {
		t.Errorf("a missing vote is %v, want raft's own \"not found\"", err)
	}
	read := func(wantTerm uint64, wantCandidate string) {
		t.Helper()
		term, err := s.GetUint64(keyVoteTerm)
		candidate, err2 := s.Get(keyVoteCandidate)
		if err := errors.Join(err, err2); err != nil || term != wantTerm || string(candidate) != wantCandidate {
			t.Errorf("the vote is %d, %q, %v; want %d, %q", term, candidate, err, wantTerm, wantCandidate)
		}
	}
	for term, candidate := range []string{"a", "b:7460", ""} {
		if err := errors.Join(s.SetUint64(keyVoteTerm, uint64(term)), s.Set(keyVoteCandidate, []byte(candidate))); err != nil {
			t.Fatal(err)
		}
		read(uint64(term), candidate)
	}
	if err := s.SetUint64(keyVoteTerm, 9); err != nil {
		t.Fatal(err)
	}
	read(2, "") // until the candidate follows
}

func TestAVoteWithoutATermIsFatal(t *testing.T) {
	t.Parallel()
	f := &fatals{}
	s := openNew(t, t.TempDir(), func(c *Config) { c.Fatal = f.record })
	if err := s.Set(keyVoteCandidate, []byte("a")); !errors.Is(err, errVoteWithoutTerm) || len(f.all()) != 1 {
		t.Errorf("got %v and %v, want %v", err, f.all(), errVoteWithoutTerm)
	}
}
