package raftnode

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"
)

// lonely makes a patient transport whose peer answers from a moment on.
func lonely(backAfter time.Duration, term uint64) (t *patientTransport, sent *int) {
	began := time.Now()
	sent = new(int)
	t = newPatientTransport(&raft.NetworkTransport{})
	t.send = func(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error {
		*sent++
		if time.Since(began) < backAfter {
			return errors.New("connection refused")
		}
		return nil
	}
	leads := func(of uint64) bool { return of == term }
	t.leads.Store(&leads)
	return t, sent
}

func TestAReplicaThatComesBackGetsItsLogAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := lonely(20*time.Second, 3)
		began := time.Now()
		err := p.AppendEntries("n2", "", &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7}, new(raft.AppendEntriesResponse))
		if took := time.Since(began); err != nil || took < 20*time.Second || took > 20*time.Second+2*lookAgain {
			t.Errorf("a peer that was away for 20 s was reached after %v, %v", took, err)
		}
	})
}

func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		term  uint64
		close bool
		beat  bool
		most  time.Duration
	}{
		"by itself":               {term: 3, most: holdFor},
		"with the term":           {term: 2, most: lookAgain},
		"when the node is closed": {term: 3, close: true, most: time.Second},
		"at once for a heartbeat": {term: 3, beat: true, most: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, sent := lonely(time.Hour, 3)
				if x.close {
					time.AfterFunc(time.Second, func() { p.once.Do(func() { close(p.closed) }) })
				}
				q := &raft.AppendEntriesRequest{Term: x.term, PrevLogEntry: 7}
				if x.beat {
					q.PrevLogEntry = 0
				}
				began := time.Now()
				err := p.AppendEntries("n2", "", q, new(raft.AppendEntriesResponse))
				if took := time.Since(began); err == nil || took != x.most {
					t.Errorf("gave up after %v with %v (%d tries), want %v", took, err, *sent, x.most)
				}
			})
		})
	}
}

func TestAPeerThatWasRestartedIsAskedForItsVote(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	leader := c.leader(t)
	asker, peer := c.others(leader)[0], c.others(leader)[1]
	vote := func() error {
		request := &raft.RequestPreVoteRequest{RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(asker.id), Addr: []byte(asker.address),
		}}
		return asker.transport.RequestPreVote(raft.ServerID(peer.id), raft.ServerAddress(peer.address), request, &raft.RequestPreVoteResponse{})
	}
	var votes errgroup.Group
	for range 2 * maxPool { // at the same time: the pool is filled
		votes.Go(vote)
	}
	if err := votes.Wait(); err != nil {
		t.Fatal(err)
	}
	peer.stop(t)
	peer.restart(t)
	for range 2 {
		if err := vote(); err != nil {
			t.Errorf("a peer that is there was not asked: %v", err)
		}
	}
	c.wantNoFatals(t)
}
