package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/tlsconf"
)

// stranger is someone who should not reach Raft, and how its refusal is counted.
type stranger struct {
	dial      func(t *testing.T, one *server) error
	handshake string // result; "" is handshakeOK
	reason    string // "": not refused by the admission
}

// speak connects with a configuration and sends a first message, and returns how the
// other side ended the connection.
func speak(t *testing.T, cfg *tls.Config, one *server, message string) error {
	t.Helper()
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", one.address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, message); err != nil {
		return err
	}
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	return nil
}

// careless is the configuration of a peer that accepts any server, for a protocol.
func careless(own *tls.Certificate, protocol string) *tls.Config {
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol},
		InsecureSkipVerify: true, //nolint:gosec // it is the one that is checked
	}
	if own != nil {
		cfg.Certificates = []tls.Certificate{*own}
	}
	return cfg
}

// strangers are all that must not reach Raft of server n1, whose CA is ca.
func strangers(t *testing.T, ca authority) map[string]stranger {
	t.Helper()
	worker, err := tlsconf.OpenWorkerKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dials := func(id, certified string, a authority) func(*testing.T, *server) error {
		return func(t *testing.T, one *server) error {
			t.Helper()
			p := a.peering(t, certified)
			cfg := p.RaftClient("n1")
			cfg.VerifyConnection = nil
			conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", one.address)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			_, err = greet(conn, prefaceMagic, Preface{ServerID: id, Instance: "i" + id, ClusterID: testCluster}, "n1")
			return err
		}
	}
	return map[string]stranger{
		"a removed replica":                         {dials("n3", "n3", ca), "", reasonRemoved},
		"a replica with a key that it did not have": {dials("n4", "n4", ca), "", reasonKey},
		"a certificate of another server":           {dials("n2", "n5", ca), "", reasonServerID},
		"a replica of another cluster":              {dials("n2", "n2", newAuthority(t)), handshakeRefused, ""},
		"a worker's key": {func(t *testing.T, one *server) error {
			t.Helper()
			return speak(t, careless(&worker, tlsconf.ProtocolRaft), one, prefaceMagic)
		}, handshakeRefused, ""},
		"a user without a certificate": {func(t *testing.T, one *server) error {
			t.Helper()
			return speak(t, careless(nil, tlsconf.ProtocolRaft), one, grpcMagic)
		}, handshakeRefused, ""},
		"a user who speaks Raft on the protocol of tokens": {func(t *testing.T, one *server) error {
			t.Helper()
			return speak(t, careless(nil, tlsconf.ProtocolGRPC), one, prefaceMagic)
		}, "", ""},
	}
}

func TestStrangersAreRefusedAndCountedAndDisturbNoOthers(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for name, s := range strangers(t, ca) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := newSecureServer(t, Preface{ServerID: "n1", Instance: "in1", ClusterID: testCluster}, nil, ca.peering(t, "n1"))
			one.stream.admission.Removed = func(id string) bool { return id == "n3" }
			one.stream.admission.Keys = func(certified string) [][32]byte {
				if certified != "n4" {
					return nil
				}
				return [][32]byte{{1}}
			}
			one.stream.answer = func(Question) Answer { return Answer{Code: AnswerYes} }
			one.mux.Attach(one.Transport)
			two := secured(t, ca, "n2", "n2")
			two.KeepLinks(t.Context(), []Peer{{"n1", one.address}})
			before := one.mux.Handshakes()

			if err := s.dial(t, one); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want a refusal", err)
			}
			result := s.handshake
			if result == "" {
				result = handshakeOK
			}
			await(t, func() bool { return one.mux.Handshakes()[result] == before[result]+1 })
			want := map[string]uint64{}
			if s.reason != "" {
				want[s.reason] = 1
			}
			await(t, func() bool { return s.reason == "" || one.Refused()[s.reason] > 0 })
			wantRefusals(t, one, want)

			if a, err := two.Ask(t.Context(), Peer{"n1", one.address}, Question{Kind: AskDiskSpace}); err != nil || a.Code != AnswerYes {
				t.Errorf("on a connection from before: %+v, %v", a, err)
			}
			if err := two.watch(t, one); err != nil {
				t.Errorf("on a new connection: %v", err)
			}
			if n := one.mux.Handshakes()[handshakeOK] - before[handshakeOK]; n > 2 {
				t.Errorf("%d handshakes: connections were opened again", n)
			}
		})
	}
}

// The side that dials checks the same.
func TestAServerThatDoesNotHaveTheRecordedKeyIsNotUsed(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	one, two := secured(t, ca, "n1", "n1"), secured(t, ca, "n2", "n2")
	recorded := tlsconf.KeyHash(one.stream.tls.Source().Cert)
	var key atomic.Pointer[[32]byte]
	key.Store(&recorded)
	three := newSecureServer(t, Preface{ServerID: "n3", Instance: "in3", ClusterID: testCluster}, nil, ca.peering(t, "n3"))
	three.stream.admission.Keys = func(string) [][32]byte { return [][32]byte{*key.Load()} }
	if err := three.watch(t, one); err != nil {
		t.Errorf("with the recorded key: %v", err)
	}
	certified, got, ok := three.ProvenKey("n1")
	if !ok || certified != "n1" || got != recorded {
		t.Errorf("proven: %s, %x, %t", certified, got, ok)
	}
	if err := three.watch(t, two); err == nil || !strings.Contains(err.Error(), "another key than the cluster has recorded for n2") {
		t.Errorf("with another key: %v", err)
	}
	if _, _, ok := three.ProvenKey("n2"); ok {
		t.Error("a refused peer counts as proven")
	}
	wantRefusals(t, three, map[string]uint64{reasonKey: 1})
}

// A wrong clock must not divide a cluster: both sides report what it makes of the dates,
// and connect.
func TestAWrongClockRefusesNoReplica(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for name, now := range map[string]time.Time{"1970": time.Unix(0, 0), "2090": time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var reported atomic.Int64
			wrong := ca.peering(t, "n1")
			wrong.Now = func() time.Time { return now }
			wrong.PeerDates = func(serverID string, err *tlsconf.DateError) {
				if serverID == "n2" && err != nil && err.Now.Equal(now) {
					reported.Add(1)
				}
			}
			one := newSecureServer(t, Preface{ServerID: "n1", Instance: "in1", ClusterID: testCluster}, nil, wrong)
			one.mux.Attach(one.Transport)
			two := secured(t, ca, "n2", "n2")
			if err := errors.Join(two.watch(t, one), one.watch(t, two)); err != nil {
				t.Error(err)
			}
			if got := reported.Load(); got != 2 {
				t.Errorf("%d invalid dates were reported, want 2", got)
			}
			wantRefusals(t, one, map[string]uint64{})
			wantRefusals(t, two, map[string]uint64{})
		})
	}
}

// A kept connection ends a reader's wait by a deadline, which TLS must survive.
func TestKeptConnectionsWorkOverTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	one := newSecureServer(t, Preface{ServerID: "n1", Instance: "in1", ClusterID: testCluster}, nil, ca.peering(t, "n1"))
	one.stream.answer = func(q Question) Answer { return Answer{Code: AnswerYes, LastIndex: q.Term} }
	one.mux.Attach(one.Transport)
	two := newSecureServer(t, Preface{ServerID: "n2", Instance: "in2", ClusterID: testCluster}, nil, ca.peering(t, "n2"))
	var dials atomic.Int64
	two.stream.dial = func(ctx context.Context, address string) (net.Conn, error) {
		dials.Add(1)
		return DialTCP(ctx, address)
	}
	peer := Peer{"n1", one.address}
	two.KeepLinks(t.Context(), []Peer{peer})
	for term := range uint64(20) {
		if a, err := two.Ask(t.Context(), peer, Question{Kind: AskLeaderLost, Term: term, Server: "n3"}); err != nil || a != (Answer{AnswerYes, term}) {
			t.Fatalf("question %d: %+v, %v", term, a, err)
		}
	}
	if n := dials.Load(); n != 3 {
		t.Errorf("%d dials, want 3", n)
	}
	if two.RoundTrip() == 0 {
		t.Error("the round trip was not measured")
	}
}
