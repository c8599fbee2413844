package tlsconf

import (
	"crypto/tls"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestReplicasOfAClusterConnectForRaftAndGRPC(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	one, two := replica(t, ca, ReplicaRequest{ServerID: "n1"}), replica(t, ca, ReplicaRequest{ServerID: "n2"})
	for protocol, client := range map[string]*tls.Config{
		ProtocolRaft: peering(two).RaftClient("n1"), ProtocolGRPC: peering(two).GRPCClient(),
	} {
		state := connect(t, serverTLS(peering(one)), client)
		if state.NegotiatedProtocol != protocol || state.Version != tls.VersionTLS13 || state.DidResume {
			t.Errorf("got %+v", state)
		}
		if id, err := one.VerifyPeer(&state); err != nil || id != "n2" {
			t.Errorf("the peer is %q, %v", id, err)
		}
	}
}

func TestWhoIsNotThatReplicaOfTheClusterIsRefusedForRaft(t *testing.T) {
	t.Parallel()
	const foreignCluster = "ffffffffffffffffffffffffffffffff"
	ca, other := newTestCA(t), newTestCA(t)
	server := replica(t, ca, ReplicaRequest{ServerID: "n1"})
	worker, err := OpenWorkerKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	raw := func(certs ...tls.Certificate) *tls.Config {
		return &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{ProtocolRaft}, Certificates: certs,
			InsecureSkipVerify: true, //nolint:gosec // an adversary
		}
	}
	for name, c := range map[string]struct {
		client *tls.Config
		want   string
	}{
		"no certificate":         {raw(), "the peer has no certificate, and must be a replica"},
		"a worker's key":         {raw(worker), "not the certificate of a replica"},
		"another CA":             {raw(replica(t, other, ReplicaRequest{ServerID: "n2"}).pair), "not issued by a CA"},
		"another cluster":        {raw(replica(t, ca, ReplicaRequest{ServerID: "n2", ClusterID: foreignCluster}).pair), "is for cluster " + foreignCluster},
		"the CA's own":           {raw(tls.Certificate{Certificate: [][]byte{ca.Cert.Raw}, PrivateKey: ca.key}), "not the certificate of a replica"},
		"TLS 1.2":                {&tls.Config{MaxVersion: tls.VersionTLS12, NextProtos: []string{ProtocolRaft}, InsecureSkipVerify: true}, "unsupported versions"},         //nolint:gosec // an adversary
		"a protocol of another":  {&tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"other"}, InsecureSkipVerify: true}, "unsupported application protocols"}, //nolint:gosec // an adversary
		"it dials another one":   {peering(replica(t, ca, ReplicaRequest{ServerID: "n2"})).RaftClient("n3"), ""},
		"it is of another CA":    {peering(replica(t, other, ReplicaRequest{ServerID: "n2"})).RaftClient("n1"), ""},
		"it is in another group": {peering(replica(t, ca, ReplicaRequest{ServerID: "n2", ClusterID: foreignCluster})).RaftClient("n1"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, serverErr, clientErr := handshake(t, serverTLS(peering(server)), c.client)
			if serverErr == nil || clientErr == nil {
				t.Fatalf("accepted: %v, %v", serverErr, clientErr)
			}
			if c.want != "" {
				wantError(t, serverErr, c.want)
			}
		})
	}
}

func TestTheDialerNamesWhichReplicaAnswered(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	two := peering(replica(t, ca, ReplicaRequest{ServerID: "n2"}))
	_, _, err := handshake(t, serverTLS(peering(replica(t, ca, ReplicaRequest{ServerID: "n1"}))), two.RaftClient("n3"))
	wantError(t, err, "certificate of replica n1", "must be n3")
	_, _, err = handshake(t, serverTLS(peering(replica(t, ca, ReplicaRequest{ServerID: "n1"}))), two.RaftClient("n1-2"))
	if err != nil {
		t.Errorf("a replica that returned under a new id is refused: %v", err)
	}
}

// G18: a replica whose clock is wrong still takes part.
func TestWrongDatesBetweenReplicasRaiseAnAlarmAndRefuseNothing(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	for name, now := range map[string]time.Time{"1970": time.Unix(0, 0), "2099": time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var alarms atomic.Int32
			wrong := func(id string) Peering {
				p := peering(replica(t, ca, ReplicaRequest{ServerID: id}))
				p.Now = func() time.Time { return now }
				p.PeerDates = func(_ string, err *DateError) {
					if err == nil {
						t.Error("the dates are valid")
						return
					}
					alarms.Add(1)
					wantError(t, err, "certificate of replica n", "check this machine's clock")
				}
				return p
			}
			one, two := wrong("n1"), wrong("n2")
			for _, client := range []*tls.Config{two.RaftClient("n1"), two.GRPCClient()} {
				connect(t, serverTLS(one), client)
			}
			if got := alarms.Load(); got != 3 { // both sides of Raft, the client of gRPC
				t.Errorf("%d alarms", got)
			}
			if err := one.Source().OwnDates(now); err == nil {
				t.Error("the replica's own dates are accepted")
			}
		})
	}
}

func TestClientsTrustTheCAOrTheHashOfItsKey(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	server := serverTLS(peering(replica(t, ca, ReplicaRequest{ServerID: "n1"})))
	worker, err := OpenWorkerKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return testNow }
	for name, trust := range map[string]Trust{"CA": {Roots: ca.roots()}, "hash": {Keys: [][32]byte{KeyHash(ca.Cert)}}} {
		connect(t, server, trust.Config(nil, now))
		state := connect(t, server, trust.Config(&worker, now))
		if KeyHash(state.PeerCertificates[0]) != KeyHash(parsed(t, worker)) {
			t.Errorf("%s: the server sees another key", name)
		}
		if _, err := replica(t, ca, ReplicaRequest{ServerID: "n1"}).VerifyPeer(&state); !errors.Is(err, ErrNotReplica) {
			t.Errorf("a worker counts as a replica: %v", err)
		}
	}
}

func TestClientsRefuseServersThatTheirCADidNotCertify(t *testing.T) {
	t.Parallel()
	ca, other := newTestCA(t), newTestCA(t)
	worker, err := OpenWorkerKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	byKey, byRoot := Trust{Keys: [][32]byte{KeyHash(ca.Cert)}}, Trust{Roots: ca.roots()}
	forged := replica(t, other, ReplicaRequest{ServerID: "n1"})
	withPair := func(pair tls.Certificate) *Replica {
		r := *forged
		r.pair = pair
		r.grpc = r.serverConfig(ProtocolGRPC)
		return &r
	}
	mixed := forged.pair // a proxy sends the real CA after its own certificate
	mixed.Certificate = [][]byte{forged.pair.Certificate[0], ca.Cert.Raw}
	for name, c := range map[string]struct {
		trust  Trust
		server *Replica
		want   []string
	}{
		"another CA, by hash":       {byKey, forged, []string{hashText(KeyHash(ca.Cert)), hashText(KeyHash(other.Cert)), "intercepts"}},
		"another CA, by file":       {byRoot, forged, []string{hashText(KeyHash(ca.Cert)), hashText(KeyHash(other.Cert)), "intercepts"}},
		"the CA of another's leaf":  {byKey, withPair(mixed), []string{"intercepts"}},
		"certificate of no replica": {byRoot, withPair(worker), []string{"not the certificate of a replica"}},
		"nothing is trusted":        {Trust{}, forged, []string{"intercepts"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := c.trust.Config(nil, func() time.Time { return testNow })
			_, _, err := handshake(t, serverTLS(peering(c.server)), cfg)
			wantError(t, err, c.want...)
		})
	}
}

func TestClientsCheckDatesAndNameBothTimes(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	server := serverTLS(peering(replica(t, ca, ReplicaRequest{ServerID: "n1", Validity: 24 * time.Hour})))
	for _, c := range []struct {
		now  time.Time
		want []string
	}{
		{testNow.Add(27 * time.Hour), []string{"to 2026-05-02T12:00:00Z", "clock shows 2026-05-02T15:00:00Z", "expired 3h0m0s ago", "clock, which is at least 3h0m0s ahead", "replica n1"}},
		{time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC), []string{"clock shows 2040-01-01T00:00:00Z", "clock, which is at least 4991 days ahead"}},
		{time.Unix(0, 0), []string{"clock shows 1970-01-01T00:00:00Z", "becomes valid in 20574 days", "clock, which is at least 20574 days behind"}},
		{testNow.Add(-2 * time.Hour), []string{"from 2026-05-01T11:00:00Z", "clock shows 2026-05-01T10:00:00Z", "becomes valid in 1h0m0s", "clock, which is at least 1h0m0s behind"}},
	} {
		_, _, err := handshake(t, server, Trust{Roots: ca.roots()}.Config(nil, func() time.Time { return c.now }))
		wantError(t, err, c.want...)
		if _, ok := errors.AsType[*DateError](err); !ok {
			t.Errorf("got %T", err)
		}
	}
}

func TestATrustFileMustHaveCAs(t *testing.T) {
	t.Parallel()
	ca, dir := newTestCA(t), t.TempDir()
	issue(t, ca, dir, ReplicaRequest{ServerID: "n1"})
	trust, err := ReadTrust(dir + "/" + CAFile)
	if err != nil || len(trust.Roots) != 1 {
		t.Errorf("got %v, %v", trust, err)
	}
	_, err = ReadTrust(dir + "/" + CertFile)
	wantError(t, err, CertFile, "not a CA")
	hash := KeyHash(ca.Cert)
	if got, err := ParseKeyHash(hashText(hash)); err != nil || got != hash {
		t.Errorf("got %x, %v", got, err)
	}
	_, err = ParseKeyHash("sha256:12")
	wantError(t, err, "64 hexadecimal digits")
}

// ticketCache counts the tickets that a client gets.
type ticketCache struct {
	tls.ClientSessionCache

	tickets atomic.Int32
}

// Put implements tls.ClientSessionCache. A nil session removes one.
func (c *ticketCache) Put(key string, s *tls.ClientSessionState) {
	if s != nil {
		c.tickets.Add(1)
	}
	c.ClientSessionCache.Put(key, s)
}

// No session is resumed, although this client would. It gets no ticket, without which it
// could not send early data either.
func TestSessionsAreNotResumed(t *testing.T) {
	t.Parallel()
	ca := newTestCA(t)
	server := serverTLS(peering(replica(t, ca, ReplicaRequest{ServerID: "n1"})))
	client := Trust{Roots: ca.roots()}.Config(nil, func() time.Time { return testNow })
	cache := &ticketCache{ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	client.ClientSessionCache = cache
	for range 3 {
		if connect(t, server, client).DidResume || cache.tickets.Load() > 0 {
			t.Errorf("resumed, or one of %d tickets was sent", cache.tickets.Load())
		}
	}
	// With tickets, this test would see them.
	server = &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		cfg, err := peering(replica(t, ca, ReplicaRequest{ServerID: "n1"})).GetConfigForClient(hello)
		cfg.SessionTicketsDisabled = false
		return cfg, err
	}}
	if connect(t, server, client); cache.tickets.Load() == 0 {
		t.Error("no ticket is seen although they are on")
	}
}

// Thousands of workers are connected at once: none of them has a configuration of its own.
func TestConnectionsOfClientsShareAConfiguration(t *testing.T) {
	t.Parallel()
	p := peering(replica(t, newTestCA(t), ReplicaRequest{ServerID: "n1"}))
	hello := &tls.ClientHelloInfo{SupportedProtos: []string{ProtocolGRPC}}
	first, err := p.GetConfigForClient(hello)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := p.GetConfigForClient(hello); err != nil || second != first {
		t.Errorf("got another configuration, %v", err)
	}
}
