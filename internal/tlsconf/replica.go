package tlsconf

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
)

// Replica is the certificate of a replica, its key, and the CAs that it trusts. It is
// immutable.
type Replica struct {
	ClusterID, ServerID string
	Cert                *x509.Certificate
	// Roots are the CAs of ca.crt that this replica trusts. Bundle has all certificates of
	// ca.crt, also the cross-certificates. Read only.
	Roots, Bundle []*x509.Certificate

	chain []*x509.Certificate // of Cert, with its root
	pair  tls.Certificate
	grpc  *tls.Config // of the server's side; read only
	sum   [32]byte    // of the files' contents
}

// LoadReplica reads tls.crt, tls.key and ca.crt of a directory. They must belong
// together; their dates are not checked.
func LoadReplica(dir string) (*Replica, error) {
	sum := sha256.New()
	contents := make(map[string][]byte)
	for _, name := range []string{CertFile, KeyFile, CAFile} {
		data, err := readFile(filepath.Join(dir, name), name == KeyFile)
		if err != nil {
			return nil, err
		}
		contents[name] = data
		part := sha256.Sum256(data)
		sum.Write(part[:])
	}
	inFile := func(name string, err error) error {
		return fmt.Errorf("reading %s: %w", filepath.Join(dir, name), err)
	}
	certs, err := parseCerts(contents[CertFile])
	if err != nil {
		return nil, inFile(CertFile, err)
	}
	key, err := parseKey(contents[KeyFile])
	if err != nil {
		return nil, inFile(KeyFile, err)
	}
	roots, err := parseCerts(contents[CAFile])
	if err != nil {
		return nil, inFile(CAFile, err)
	}
	r, err := newReplica(certs, key, roots)
	if err != nil {
		return nil, inFile(CertFile, err)
	}
	copy(r.sum[:], sum.Sum(nil))
	return r, nil
}

// newReplica checks that everything belongs together.
func newReplica(certs []*x509.Certificate, key crypto.Signer, roots []*x509.Certificate) (*Replica, error) {
	leaf := certs[0]
	if public, ok := key.Public().(interface{ Equal(x crypto.PublicKey) bool }); !ok || !public.Equal(leaf.PublicKey) {
		return nil, fmt.Errorf("the certificate belongs to another key than the one in %s: both must be from the same issue", KeyFile)
	}
	r := &Replica{Cert: leaf, Roots: Anchors(roots), Bundle: roots}
	var err error
	if r.ClusterID, r.ServerID, err = PeerID(leaf); err != nil {
		return nil, fmt.Errorf("%w; issue one with dtaskctl tls issue", err)
	}
	for _, root := range roots {
		if !root.IsCA {
			return nil, fmt.Errorf("%s has the certificate %q, which is not a CA", CAFile, root.Subject.CommonName)
		}
	}
	// It is both a server's and a client's certificate.
	chain, err := verifyChain(certs, roots, x509.ExtKeyUsageServerAuth)
	if err == nil {
		_, err = verifyChain(certs, roots, x509.ExtKeyUsageClientAuth)
	}
	if err != nil {
		return nil, fmt.Errorf("the certificate was not issued for servers and clients by a CA in %s: %w", CAFile, err)
	}
	if len(chain) < 2 {
		return nil, errors.New("the certificate is a CA; a replica needs one of its own")
	}
	r.chain, r.pair = chain, tls.Certificate{PrivateKey: key, Leaf: leaf}
	for _, cert := range presented(chain, roots) {
		r.pair.Certificate = append(r.pair.Certificate, cert.Raw)
	}
	r.grpc = r.serverConfig(ProtocolGRPC)
	return r, nil
}

// Save writes the certificate, its key and the CAs to a directory, which is created if it
// does not exist. It replaces those of the same replica of the same cluster, and no others.
func Save(dir string, cert *x509.Certificate, key crypto.Signer, roots ...*x509.Certificate) error {
	clusterID, serverID, err := PeerID(cert)
	if err != nil {
		return err
	}
	if old, err := readCerts(filepath.Join(dir, CertFile)); err == nil {
		if c, s, err := PeerID(old[0]); err != nil || c != clusterID || s != serverID {
			return fmt.Errorf("writing %s: it exists and is not of replica %s of this cluster: choose another directory", filepath.Join(dir, CertFile), serverID)
		}
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := makeDir(dir); err != nil {
		return err
	}
	// A running replica that reads between two of these writes finds a pair that does not
	// match, keeps the old one and reads again.
	if err := replaceFile(filepath.Join(dir, CAFile), encodeCerts(roots...), 0o644); err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(dir, KeyFile), keyPEM, 0o600); err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, CertFile), encodeCerts(cert), 0o644)
}

// VerifyPeer returns the server id of the replica at the other end of a connection to the
// gRPC port. The error wraps ErrNotReplica if the peer has a certificate of another kind,
// such as a worker's, or none. It ignores dates (see the package comment).
func (r *Replica) VerifyPeer(state *tls.ConnectionState) (serverID string, err error) {
	if len(state.PeerCertificates) == 0 {
		return "", fmt.Errorf("%w: the peer has none", ErrNotReplica)
	}
	serverID, _, err = r.verify(state, x509.ExtKeyUsageClientAuth)
	return serverID, err
}

// TrustsPeer reports whether the peer of an open connection may keep it. If it is a replica,
// a CA that this one trusts must have issued its certificate. Others, such as workers, are
// known by keys and tokens, for which no CA vouches. It ignores dates.
func (r *Replica) TrustsPeer(state *tls.ConnectionState) bool {
	if len(state.PeerCertificates) == 0 {
		return true
	}
	if _, _, err := PeerID(state.PeerCertificates[0]); err != nil {
		return true
	}
	_, _, err := r.verify(state, x509.ExtKeyUsageAny)
	return err == nil
}

// verify verifies that the peer is a replica of the same cluster.
func (r *Replica) verify(state *tls.ConnectionState, usage x509.ExtKeyUsage) (serverID string, chain []*x509.Certificate, err error) {
	clusterID, serverID, chain, err := verifyReplica(state, r.Roots, usage)
	if err != nil {
		return "", nil, err
	}
	if clusterID != r.ClusterID {
		return "", nil, fmt.Errorf("replica %s refused: its certificate is for cluster %s, and this replica's for cluster %s", serverID, clusterID, r.ClusterID)
	}
	return serverID, chain, nil
}
