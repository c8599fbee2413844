package tlsconf

import (
	"crypto/tls"
	"slices"
	"time"
)

// The protocols of a replica's port.
const (
	// ProtocolGRPC is gRPC. The client may have a certificate: a replica's or a worker's.
	ProtocolGRPC = "h2"
	// ProtocolRaft is what only replicas of the same cluster speak: Raft and watch
	// connections.
	ProtocolRaft = "dtask-raft/1"
)

// fullRecords has each write sent in records as large as possible. By default, package tls
// begins with records of one packet, again after each second of silence, so that a browser can
// show the first of them early. Here a message is of no use before its end, and each record
// costs a system call.
const fullRecords = true

// Source returns the current certificate of this replica.
type Source func() *Replica

// Peering is how a replica meets others. All fields but Source are optional.
type Peering struct {
	Source Source
	// Now is this machine's clock. Default: time.Now.
	Now func() time.Time
	// PeerDates is called for each connection to or from a replica: err is nil if its
	// certificate is valid by this machine's clock. The connection is accepted in either
	// case: a wrong clock must not divide a cluster. It is called from many goroutines and
	// must not block.
	PeerDates func(serverID string, err *DateError)
}

// GetConfigForClient chooses the configuration of a connection to the port that Raft and
// gRPC share, by the protocol that the client offers. It is the only field that the
// configuration of the listener needs. The caller may change the result only for
// ProtocolRaft: connections of gRPC share one, because there may be thousands.
func (p Peering) GetConfigForClient(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	current := p.Source()
	if slices.Contains(hello.SupportedProtos, ProtocolRaft) {
		cfg := current.serverConfig(ProtocolRaft)
		cfg.VerifyConnection = p.verifyDialer(current)
		return cfg, nil
	}
	// Other protocols are refused by package tls, except that a client that offers none, or
	// HTTP/1.1 only, completes the handshake without one. So scanners can examine the port.
	// The caller refuses a connection without a protocol.
	return current.grpc, nil
}

// HTTPConfig is the configuration of the port for metrics and health.
func (p Peering) HTTPConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, NextProtos: []string{"http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cfg := p.Source().serverConfig("http/1.1")
			cfg.ClientAuth = tls.NoClientCert
			return cfg, nil
		},
	}
}

// serverConfig returns a new configuration with a certificate of this replica.
func (r *Replica) serverConfig(protocol string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, Certificates: []tls.Certificate{r.pair},
		DynamicRecordSizingDisabled: fullRecords,
		// A resumed session outlives a change of the CAs, and saves a third of 0.7 ms.
		SessionTicketsDisabled: true,
		// A certificate proves the possession of its key. Whose key it is, and what that one
		// may do, is decided above: keys of workers are self-signed.
		ClientAuth: tls.RequestClientCert,
	}
}

// verifyDialer returns the check of a replica that connects to this one.
func (p Peering) verifyDialer(current *Replica) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		serverID, chain, err := current.verify(&state, clientUsage)
		if err != nil {
			return err
		}
		p.checkDates(serverID, chain)
		return nil
	}
}
