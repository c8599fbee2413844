package tlsconf

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Trust is what a client or worker trusts: CAs, or hashes of their keys. At least one.
type Trust struct {
	Roots []*x509.Certificate
	// Keys are SHA-256 of public keys of CAs. Servers send their CA, which is found by it.
	Keys [][32]byte
}

// NotTrusted is the begin of the error of a connection whose server is refused by
// Trust.Config. gRPC passes errors of handshakes on as text, and connecting again to such
// a server is useless.
const NotTrusted = "server not trusted: "

// ReadTrust reads the CAs of a file.
func ReadTrust(path string) (Trust, error) {
	certs, err := readCerts(path)
	if err != nil {
		return Trust{}, err
	}
	for _, cert := range certs {
		if !cert.IsCA {
			return Trust{}, fmt.Errorf("reading %s: the certificate %q is not a CA: use the file ca.crt of the cluster", path, cert.Subject.CommonName)
		}
	}
	return Trust{Roots: certs}, nil
}

// ParseKeyHash parses the hash of a CA's public key, 64 hexadecimal digits, which may
// have the prefix sha256:.
func ParseKeyHash(text string) (hash [32]byte, err error) {
	digits, err := hex.DecodeString(strings.TrimPrefix(text, "sha256:"))
	if err != nil || len(digits) != len(hash) {
		return hash, fmt.Errorf("invalid key hash %q: must be sha256: and 64 hexadecimal digits", text)
	}
	return [32]byte(digits), nil
}

// Config returns the configuration of a client of the gRPC port. The server's certificate
// must be a replica's, must have been issued by a trusted CA, and must be valid by this
// machine's clock; now defaults to time.Now. The client presents own, if it is not nil.
//
// Host names are not checked. The CA of a cluster issues certificates to its replicas
// only, so the chain and the replica's URI prove what a name would, under every address
// by which a replica is reachable: a new address, a tunnel or a load balancer needs no new
// certificate. With the key of one replica one could answer for another one, but a replica may
// redirect clients anyway.
func (t Trust) Config(own *tls.Certificate, now func() time.Time) *tls.Config {
	var certificate func() *tls.Certificate
	if own != nil {
		certificate = func() *tls.Certificate { return own }
	}
	return FollowTrust(func() Trust { return t }, certificate, now)
}

// FollowTrust returns the configuration of Trust.Config for a trust and a certificate that
// may change: each handshake asks for them.
func FollowTrust(trust func() Trust, own func() *tls.Certificate, now func() time.Time) *tls.Config {
	if now == nil {
		now = time.Now
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{ProtocolGRPC}, DynamicRecordSizingDisabled: fullRecords,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := trust().verify(&state, now()); err != nil {
				return fmt.Errorf("%s%w", NotTrusted, err)
			}
			return nil
		},
	}
	if own != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own(), nil }
	}
	return cfg
}

// Trusts reports whether the server of an open connection has a certificate of a trusted CA.
// It ignores dates: those of a connection that was opened in time do not matter.
func (t Trust) Trusts(state *tls.ConnectionState) bool {
	_, _, err := t.chain(state)
	return err == nil
}

func (t Trust) verify(state *tls.ConnectionState, now time.Time) error {
	serverID, chain, err := t.chain(state)
	if err != nil {
		return err
	}
	if dates := chainDates("replica "+serverID, chain, now); dates != nil {
		return dates
	}
	return nil
}

// chain returns the chain of a server's certificate, which ends in a trusted CA.
func (t Trust) chain(state *tls.ConnectionState) (serverID string, chain []*x509.Certificate, err error) {
	roots := t.Roots
	for _, cert := range state.PeerCertificates {
		if t.hasKey(cert) {
			roots = append(slices.Clip(roots), cert)
		}
	}
	if len(roots) == 0 {
		return "", nil, t.errOtherCA(state.PeerCertificates)
	}
	_, serverID, chain, err = verifyReplica(state, roots, serverUsage)
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		err = t.errOtherCA(state.PeerCertificates)
	}
	return serverID, chain, err
}

// hasKey reports whether a certificate is a CA with a trusted key. A certificate that
// someone made for that key is not dangerous: what it vouches for needs its signature.
func (t Trust) hasKey(cert *x509.Certificate) bool {
	hash := KeyHash(cert)
	for _, key := range t.Keys {
		if bytes.Equal(key[:], hash[:]) {
			return cert.IsCA
		}
	}
	return false
}

// ErrOtherCA is wrapped by the error of a connection to a server whose certificate was
// issued by a CA that is not trusted: another cluster, or someone between.
var ErrOtherCA = errors.New("the server belongs to another cluster, or someone intercepts the connection")

func (t Trust) errOtherCA(presented []*x509.Certificate) error {
	var trusted []string
	for _, root := range t.Roots {
		trusted = append(trusted, hashText(KeyHash(root)))
	}
	for _, key := range t.Keys {
		trusted = append(trusted, hashText(key))
	}
	got := "none"
	if n := len(presented); n > 0 {
		got = hashText(KeyHash(presented[n-1]))
	}
	return fmt.Errorf("%w: its certificate ends in the key %s, and the trusted CA has %s", ErrOtherCA, got, strings.Join(trusted, " or "))
}
