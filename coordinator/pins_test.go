package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/tlsconf"
)

// stateRecorder applies operations to a state without a log.
type stateRecorder struct {
	machine *fsm.Machine
	pins    int
}

func (r *stateRecorder) do(op fsm.Op) error {
	fork, index := r.machine.Fork()
	b := fsm.NewEntryBuilder(fork, 1, &fsm.Effects{})
	if reason := b.Do(op); reason != fsm.Accepted {
		return fmt.Errorf("rejected: %v", reason)
	}
	if entry, _, ok := b.Finish(); ok {
		r.machine.Apply(index+1, fsm.Encode(nil, entry))
	}
	return nil
}

// PinReplica implements keyRecorder.
func (r *stateRecorder) PinReplica(_ context.Context, serverID string, keys ...[32]byte) error {
	r.pins++
	return r.do(&fsm.PinReplica{ServerID: serverID, KeyHashes: keys})
}

func TestTheLeaderRecordsEachKeyOnce(t *testing.T) {
	t.Parallel()
	own, err := tlsconf.LoadReplica(issued(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	ownKey := tlsconf.KeyHash(own.Cert)
	recorder := &stateRecorder{machine: fsm.NewMachine()}
	members := []raftnode.Server{{ID: "n1", Voter: true}, {ID: "n2-1", Voter: true}, {ID: "n3", Voter: true}}
	proven := map[string][32]byte{"n2-1": {2}} // n3 has not connected
	p := &pinner{
		serverID: "n1", own: func() *tlsconf.Replica { return own }, machine: recorder.machine, log: slog.New(slog.DiscardHandler),
		members:  func() []raftnode.Server { return members },
		recorder: func() keyRecorder { return recorder },
		proven: func(id string) (string, [32]byte, bool) {
			key, ok := proven[id]
			return map[string]string{"n2-1": "n2", "n3": "n3"}[id], key, ok
		},
	}
	want := func(when string, pins int, keys map[string][32]byte) {
		t.Helper()
		p.record(t.Context())
		for _, id := range []string{"n1", "n2", "n2-1", "n3"} {
			got, key := recordedKeys(recorder.machine, id), keys[id]
			if key == [32]byte{} && len(got) > 0 || key != [32]byte{} && (len(got) != 1 || got[0] != key) {
				t.Errorf("%s: %s has the keys %x, want %x", when, id, got, key)
			}
		}
		if recorder.pins != pins {
			t.Errorf("%s: %d keys were recorded, want %d", when, recorder.pins, pins)
		}
	}
	if err := recorder.do(&fsm.SetClusterID{ID: own.ClusterID}); err != nil {
		t.Fatal(err)
	}
	want("below the level", 0, nil)
	if err := recorder.do(&fsm.SetLevel{Level: fsm.MaxLevel}); err != nil {
		t.Fatal(err)
	}
	keys := map[string][32]byte{"n1": ownKey, "n2": {2}}
	want("at first", 2, keys)
	want("again", 2, keys)
	proven["n3"] = [32]byte{3}
	keys["n3"] = [32]byte{3}
	want("when n3 has connected", 3, keys)

	proven["n3"] = [32]byte{4}
	if own, err = tlsconf.LoadReplica(issued(t, 0)); err != nil {
		t.Fatal(err)
	}
	want("with other keys", 3, keys)
	members = members[:1]
	keys["n1"] = tlsconf.KeyHash(own.Cert)
	want("without other members", 4, keys)
}

// preopened is a network whose listeners are open.
type preopened struct {
	tcp
	net.Listener
}

// Listen implements Network.
func (p preopened) Listen(context.Context, string) (net.Listener, error) { return p.Listener, nil }

// Three replicas with certificates of dtaskctl tls issue.
func TestEveryReplicaLearnsTheKeysOfAllMembers(t *testing.T) {
	t.Parallel()
	ca, err := tlsconf.NewCA(tlsconf.NewClusterID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var (
		peers     []Peer
		listeners []net.Listener
		dirs      []string
		hashes    = make(map[string][32]byte)
	)
	for i := range 3 {
		id := fmt.Sprintf("n%d", i+1)
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		key, err := tlsconf.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		cert, err := ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: id, Key: key.Public()}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := tlsconf.Save(dir, cert, key, ca.Cert); err != nil {
			t.Fatal(err)
		}
		peers, listeners, dirs = append(peers, Peer{id, l.Addr().String()}), append(listeners, l), append(dirs, dir)
		hashes[id] = tlsconf.KeyHash(cert)
	}
	ctx, stop := context.WithCancel(t.Context())
	machines, done := make(chan *fsm.Machine, 3), make(chan error, 3) // size 3: one of each replica
	for i, p := range peers {
		cfg := Config{
			ID: p.ID, DataDir: filepath.Join(shortDir(t), p.ID), Listen: p.Address, Advertise: p.Address, Peers: peers, HTTP: "127.0.0.1:0",
			TLSDir: dirs[i], MinFree: new(MinFree), Logger: slog.New(slog.DiscardHandler),
			Seams: Seams{Network: preopened{newTCP(), listeners[i]}, HTTP: func(next http.Handler, r Internals) http.Handler {
				machines <- r.Machine
				return next
			}},
		}
		go func() { done <- Run(ctx, cfg) }()
	}
	tick, limit := time.NewTicker(5*time.Millisecond), time.After(5*time.Minute)
	defer tick.Stop()
	for range 3 {
		machine := <-machines
		for complete := false; !complete; {
			complete = true
			for id, hash := range hashes {
				keys := recordedKeys(machine, id)
				complete = complete && len(keys) == 1 && keys[0] == hash
			}
			select {
			case <-tick.C:
			case err := <-done:
				t.Fatalf("a replica ended: %v", err)
			case <-limit:
				t.Fatal("a replica does not know all keys")
			}
		}
	}
	stop()
	for range 3 {
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
