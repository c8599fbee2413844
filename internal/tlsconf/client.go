package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

const (
	serverUsage = x509.ExtKeyUsageServerAuth
	clientUsage = x509.ExtKeyUsageClientAuth
)

// RaftClient returns the configuration of a Raft or watch connection to a server, which
// must be that server of this cluster.
func (p Peering) RaftClient(serverID string) *tls.Config { return p.client(ProtocolRaft, serverID) }

// GRPCClient returns the configuration of gRPC connections to any replica of this
// cluster. It follows renewed certificates.
func (p Peering) GRPCClient() *tls.Config { return p.client(ProtocolGRPC, "") }

// client returns a configuration for connections to other replicas; serverID is the one
// that must answer, "" = any.
func (p Peering) client(protocol, serverID string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, DynamicRecordSizingDisabled: fullRecords,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &p.Source().pair, nil
		},
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies: host names don't matter, see Trust.Config, and dates don't either
		VerifyConnection: func(state tls.ConnectionState) error {
			if state.NegotiatedProtocol != protocol {
				return fmt.Errorf("the server does not speak %s: it is not a dtaskd of this version", protocol)
			}
			certified, chain, err := p.Source().verify(&state, serverUsage)
			if err != nil {
				return err
			}
			if serverID != "" && !Covers(certified, serverID) {
				return fmt.Errorf("the server has the certificate of replica %s, and must be %s: check the addresses of the members", certified, serverID)
			}
			p.checkDates(certified, chain)
			return nil
		},
	}
}

// checkDates reports whether a verified chain is valid by this machine's clock.
func (p Peering) checkDates(serverID string, chain []*x509.Certificate) {
	if p.PeerDates != nil {
		p.PeerDates(serverID, chainDates("replica "+serverID, chain, p.now()))
	}
}

func (p Peering) now() time.Time {
	if p.Now == nil {
		return time.Now()
	}
	return p.Now()
}

// OwnDates returns a *DateError if this replica's certificate or its CA is not valid at
// this machine's time, nil otherwise.
func (r *Replica) OwnDates(now time.Time) *DateError {
	return chainDates("replica "+r.ServerID, r.chain, now)
}
