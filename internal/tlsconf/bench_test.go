package tlsconf

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
)

// BenchmarkHandshake does both sides of the handshake of a worker with a replica. The CPU time
// of a machine that only has one of the sides is a part of it.
func BenchmarkHandshake(b *testing.B) {
	server, client := handshakeSides(b)
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			raw, err := l.Accept()
			if err != nil {
				return // closed below
			}
			if _, err := tls.Server(raw, server).Write([]byte{1}); err != nil {
				b.Error(err)
			}
			_ = raw.Close() // its peer has what it needs
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		conn, err := (&tls.Dialer{Config: client}).DialContext(b.Context(), "tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
		_ = conn.Close() // the server has closed it
	}
	_ = l.Close()
	<-done
}

// handshakeSides returns the configurations of a replica and of a worker.
func handshakeSides(b *testing.B) (server, client *tls.Config) {
	b.Helper()
	ca, err := NewCA(testCluster, testNow)
	if err != nil {
		b.Fatal(err)
	}
	key, err := NewKey()
	if err != nil {
		b.Fatal(err)
	}
	cert, err := ca.IssueReplica(ReplicaRequest{ServerID: "n1", Key: key.Public()}, testNow)
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	if err := Save(dir, cert, key, ca.Cert); err != nil {
		b.Fatal(err)
	}
	replica, err := LoadReplica(dir)
	if err != nil {
		b.Fatal(err)
	}
	own, err := OpenWorkerKey(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	p := peering(replica)
	return serverTLS(p), Trust{Roots: replica.Roots}.Config(&own, p.Now)
}
