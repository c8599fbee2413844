package transport

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// fakeLog is a log whose newest entry a test sets.
type fakeLog struct {
	mu      sync.Mutex
	index   uint64
	changed chan struct{}

	terms   map[uint64]uint64 // of the entries that can be read, by index
	storing chan struct{}     // nil, or closed when all entries are stored
}

func newFakeLog(newest uint64) *fakeLog { return &fakeLog{index: newest, changed: make(chan struct{})} }

func (l *fakeLog) set(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index = index
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *fakeLog) Newest() (index uint64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.index, l.changed
}

func (l *fakeLog) GetLog(index uint64, log *raft.Log) error {
	term, ok := l.terms[index]
	if !ok {
		return raft.ErrLogNotFound
	}
	log.Index, log.Term = index, term
	return nil
}

func (l *fakeLog) WaitStored(uint64) error {
	if l.storing != nil {
		<-l.storing
	}
	return nil
}

// started starts a call and reports whether it has returned once all goroutines wait.
func started(call func() error) (returned func() bool) {
	var done atomic.Bool
	go func() {
		_ = call()
		done.Store(true)
	}()
	return func() bool {
		synctest.Wait()
		return done.Load()
	}
}

// newLonely returns a transport whose only peer answers after a delay.
func newLonely(backAfter time.Duration, term uint64) (t *Transport, sent *int) {
	began := time.Now()
	sent = new(int)
	t = newTransport(&raft.NetworkTransport{}, 1)
	t.send = func(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error {
		*sent++
		if time.Since(began) < backAfter {
			return errors.New("connection refused")
		}
		return nil
	}
	t.RaftStarted(func(of uint64, _ raft.ServerID) bool { return of == term })
	return t, sent
}

func TestAReturningReplicaReceivesItsLogImmediately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const down = time.Hour
		p, _ := newLonely(down, 3)
		began := time.Now()
		err := p.AppendEntries("n2", "", &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7}, new(raft.AppendEntriesResponse))
		if took := time.Since(began); err != nil || took < down || took > down+2*retryInterval {
			t.Errorf("a peer that was down for %v was reached after %v, %v", down, took, err)
		}
	})
}

func TestRetriesEnd(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		term      uint64
		deposed   time.Duration
		removed   time.Duration
		close     bool
		heartbeat bool
		most      time.Duration
	}{
		"with the term":                {term: 3, deposed: 3 * retryInterval / 2, most: 2 * retryInterval},
		"when the peer is removed":     {term: 3, removed: 3 * retryInterval / 2, most: 2 * retryInterval},
		"when the transport is closed": {term: 3, close: true, most: time.Second},
		"immediately for a heartbeat":  {term: 3, heartbeat: true, most: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, sent := newLonely(time.Hour, 3)
				if x.close {
					time.AfterFunc(time.Second, func() { p.once.Do(func() { close(p.closed) }) })
				}
				if x.deposed > 0 {
					time.AfterFunc(x.deposed, func() { p.RaftStarted(func(uint64, raft.ServerID) bool { return false }) })
				}
				if x.removed > 0 {
					time.AfterFunc(x.removed, func() {
						p.RaftStarted(func(of uint64, to raft.ServerID) bool { return of == 3 && to != "n2" })
					})
				}
				q := &raft.AppendEntriesRequest{Term: x.term, PrevLogEntry: 7}
				if x.heartbeat {
					q.PrevLogEntry = 0
				}
				began := time.Now()
				err := p.AppendEntries("n2", "", q, new(raft.AppendEntriesResponse))
				if took := time.Since(began); err == nil || took != x.most {
					t.Errorf("returned after %v with %v (%d tries), want %v", took, err, *sent, x.most)
				}
			})
		})
	}
}

// Raft reads the entries of a request one by one. If the replica is deposed meanwhile,
// some of them may be the next leader's, and the entries before them its own.
func TestADeposedLeaderSendsNoRequestThatItMadeBefore(t *testing.T) {
	t.Parallel()
	p, sent := newLonely(0, 4)
	q := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 3, Entries: []*raft.Log{{Index: 8, Term: 4}}}
	if err := p.AppendEntries("n2", "", q, new(raft.AppendEntriesResponse)); !errors.Is(err, errDeposed) || *sent != 0 {
		t.Errorf("got %v, and %d requests were sent, want %v", err, *sent, errDeposed)
	}
	if err := p.AppendEntries("n2", "", &raft.AppendEntriesRequest{Term: 3}, new(raft.AppendEntriesResponse)); err != nil || *sent != 1 {
		t.Errorf("a heartbeat: %v, and %d requests were sent", err, *sent)
	}
}

func TestAnIdleLeaderRepeatsItselfRarelyAndSendsNewsImmediately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, sent := newLonely(0, 3)
		p.send = func(_ raft.ServerID, _ raft.ServerAddress, _ *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
			*sent++
			resp.Success = true
			return nil
		}
		p.RaftStarted(func(uint64, raft.ServerID) bool { return true })
		log := newFakeLog(7)
		p.log = log
		took := func(q raft.AppendEntriesRequest) time.Duration {
			began := time.Now()
			if err := p.AppendEntries("n2", "", &q, new(raft.AppendEntriesResponse)); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		same := raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 3, LeaderCommitIndex: 7}
		if d := took(same); d != 0 {
			t.Errorf("a request with news was delayed by %v", d)
		}
		if d := took(same); d != idleInterval {
			t.Errorf("a repeated request was delayed by %v, want %v", d, idleInterval)
		}
		time.AfterFunc(idleInterval/4, func() { log.set(8) })
		if d := took(same); d != idleInterval/4 {
			t.Errorf("a new entry ends the delay after %v, want %v", d, idleInterval/4)
		}
		for what, q := range map[string]raft.AppendEntriesRequest{
			"while an entry is pending":      same,
			"of another term":                {Term: 4, PrevLogEntry: 8, PrevLogTerm: 3, LeaderCommitIndex: 8},
			"before everything is committed": {Term: 3, PrevLogEntry: 8, PrevLogTerm: 3, LeaderCommitIndex: 7},
			"with entries":                   {Term: 3, PrevLogEntry: 7, PrevLogTerm: 3, LeaderCommitIndex: 7, Entries: []*raft.Log{{Index: 8}}},
			"that is a heartbeat":            {Term: 3},
		} {
			for range 2 {
				if d := took(q); d != 0 && what != "of another term" {
					t.Errorf("a request %s was delayed by %v", what, d)
				}
			}
		}
		if *sent != 13 {
			t.Errorf("%d requests were sent, want 13: none is answered locally", *sent)
		}
	})
}

// The entries that ended the delay would otherwise wait for the answer. Entries of
// another term are another leader's: the entries before them may differ between the two
// replicas.
func TestADelayedRequestCarriesTheEntriesThatEndedItsDelay(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		what string
		log  map[uint64]uint64 // terms of the entries from 8 on
		want int
	}{
		{"all new entries", map[uint64]uint64{8: 3, 9: 3}, 2},
		{"readable entries", map[uint64]uint64{9: 3}, 0},
		{"entries of the request's term", map[uint64]uint64{8: 4, 9: 4}, 0},
		{"no entries after another term's", map[uint64]uint64{8: 3, 9: 4}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, _ := newLonely(0, 3)
			var sent []*raft.Log
			p.send = func(_ raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
				sent, resp.Success = args.Entries, true
				return nil
			}
			log := newFakeLog(7)
			log.terms = test.log
			p.log, p.maxAppend = log, 64
			delayed := raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 3, LeaderCommitIndex: 7}
			p.peers["n2"] = peerProgress{lastSent: deltaOf(&delayed)}
			time.AfterFunc(idleInterval/4, func() { log.set(9) })
			began := time.Now()
			if err := p.AppendEntries("n2", "", &delayed, new(raft.AppendEntriesResponse)); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d != idleInterval/4 {
				t.Errorf("%s: the delay was %v, want %v", test.what, d, idleInterval/4)
			}
			if len(sent) != test.want || len(delayed.Entries) != test.want {
				t.Errorf("%s: %d entries were sent and raft sees %d, want %d", test.what, len(sent), len(delayed.Entries), test.want)
			}
			for i, log := range sent {
				if log.Index != 8+uint64(i) {
					t.Errorf("%s: entry %d is at position %d", test.what, log.Index, i)
				}
			}
		})
	}
}

// Entries that a leader could not commit may be replaced. The server's log then ends
// before them although its disk is intact.
func TestDurableIndexCountsCommittedEntriesOnly(t *testing.T) {
	t.Parallel()
	p := newTransport(&raft.NetworkTransport{}, 1)
	p.send = func(_ raft.ServerID, _ raft.ServerAddress, _ *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
		resp.Success = true
		return nil
	}
	for i, step := range []struct {
		term, prev, entries, sentCommit uint64 // the request
		commit, now, want               uint64 // what this replica knows afterwards
	}{
		{term: 3, prev: 10, entries: 5, sentCommit: 10, commit: 10, now: 3, want: 10},
		{term: 3, prev: 15, sentCommit: 12, commit: 13, now: 3, want: 13},
		{term: 3, prev: 15, sentCommit: 13, commit: 40, now: 4, want: 13}, // committed by another leader
		{term: 5, prev: 12, sentCommit: 12, commit: 12, now: 5, want: 13}, // never less
		{term: 5, prev: 12, entries: 20, sentCommit: 30, commit: 30, now: 5, want: 30},
	} {
		q := &raft.AppendEntriesRequest{Term: step.term, PrevLogEntry: step.prev, LeaderCommitIndex: step.sentCommit}
		for n := range step.entries {
			q.Entries = append(q.Entries, &raft.Log{Index: step.prev + n + 1})
		}
		if err := p.AppendEntries("n2", "", q, new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err)
		}
		if got := p.DurableIndex("n2", step.commit, step.now); got != step.want {
			t.Errorf("step %d: stored up to %d, want %d", i, got, step.want)
		}
	}
}

func TestAnAcknowledgmentCountsAfterTheEntryIsStoredHereToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog(2)
		log.storing = make(chan struct{})
		p, _ := newLonely(0, 1)
		p.send = func(_ raft.ServerID, _ raft.ServerAddress, _ *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
			resp.Success = true
			return nil
		}
		p.log = log
		logs := []*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1}}
		ask := func(q *raft.AppendEntriesRequest) (returned func() bool) {
			return started(func() error { return p.AppendEntries("n2", "", q, new(raft.AppendEntriesResponse)) })
		}
		if returned := ask(&raft.AppendEntriesRequest{Term: 1}); !returned() {
			t.Error("a request without entries waits for the disk")
		}
		returned := ask(&raft.AppendEntriesRequest{Term: 1, Entries: logs})
		if returned() {
			t.Error("an acknowledgment counts before the entries are on this disk")
		}
		close(log.storing)
		if !returned() {
			t.Error("the acknowledgment never counts")
		}
	})
}
