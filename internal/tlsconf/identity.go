package tlsconf

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

const (
	uriScheme   = "spiffe"
	replicaPath = "/replica/"
)

var (
	clusterIDRE = regexp.MustCompile(`^[0-9a-f]{32}$`)
	serverIDRE  = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,63}$`)
)

// NewClusterID returns a random id of a cluster, 32 hexadecimal digits.
func NewClusterID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// replicaURI names a replica in its certificate.
func replicaURI(clusterID, serverID string) *url.URL {
	return &url.URL{Scheme: uriScheme, Host: clusterID, Path: replicaPath + serverID}
}

// ErrNotReplica is wrapped by errors about a certificate that is not a replica's.
var ErrNotReplica = errors.New("not the certificate of a replica")

// PeerID returns which replica a certificate names: its only URI must be
// spiffe://CLUSTER/replica/SERVER. It does not verify the certificate. Other
// certificates, such as those of workers, return an error that wraps ErrNotReplica.
func PeerID(cert *x509.Certificate) (clusterID, serverID string, err error) {
	if len(cert.URIs) != 1 {
		return "", "", fmt.Errorf("%w: it has %d URIs, and a replica's has one, spiffe://CLUSTER/replica/SERVER", ErrNotReplica, len(cert.URIs))
	}
	uri := cert.URIs[0]
	server, ok := strings.CutPrefix(uri.Path, replicaPath)
	if !ok || uri.Scheme != uriScheme || !clusterIDRE.MatchString(uri.Host) || !serverIDRE.MatchString(server) ||
		uri.String() != replicaURI(uri.Host, server).String() {
		return "", "", fmt.Errorf("%w: its URI is %q, and a replica's is spiffe://CLUSTER/replica/SERVER", ErrNotReplica, uri)
	}
	return uri.Host, server, nil
}

// Covers reports whether the certificate of one server id is valid for another one: the
// same, or the one that the cluster gives to that replica when it returns without its
// data directory, such as n1-2 for n1 (ADR 0015).
func Covers(certified, serverID string) bool {
	if certified == serverID {
		return true
	}
	number, ok := strings.CutPrefix(serverID, certified+"-")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// KeyHash returns the SHA-256 of a certificate's public key (its SubjectPublicKeyInfo).
// Renewing or re-encoding a certificate doesn't change it while the key is the same.
func KeyHash(cert *x509.Certificate) [32]byte { return sha256.Sum256(cert.RawSubjectPublicKeyInfo) }

// hashText is how messages name a key.
func hashText(hash [32]byte) string { return "sha256:" + hex.EncodeToString(hash[:]) }
