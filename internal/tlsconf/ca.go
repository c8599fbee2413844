package tlsconf

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

const (
	// DefaultValidity is how long the certificate of a replica is valid.
	DefaultValidity = 90 * 24 * time.Hour
	// caValidity is how long a CA is valid.
	caValidity = 10 * 365 * 24 * time.Hour
	// backdate is how long before its issue a certificate becomes valid: clocks of other
	// machines may be behind.
	backdate = time.Hour
)

// CA issues the certificates of a cluster's replicas. It is immutable.
type CA struct {
	Cert *x509.Certificate
	// Roots are what ca.crt should have: Cert, and the certificates that it has in addition
	// while one CA replaces another, also cross-certificates. Read only.
	Roots []*x509.Certificate

	key *ecdsa.PrivateKey
}

// NewCA creates a CA for a cluster, with a new P-256 key. It is valid for ten years.
func NewCA(clusterID string, now time.Time) (*CA, error) {
	if !clusterIDRE.MatchString(clusterID) {
		return nil, fmt.Errorf("invalid cluster id %q: must be 32 hexadecimal digits", clusterID)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("creating the key of the CA: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serialNumber(), Subject: pkix.Name{CommonName: "dtask CA of cluster " + clusterID},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(caValidity),
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: 1, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		URIs: []*url.URL{{Scheme: uriScheme, Host: clusterID}},
	}
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("creating the CA: %w", err)
	}
	// MaxPathLen is for the cross-certificate of the CA that replaces this one.
	return &CA{Cert: cert, Roots: []*x509.Certificate{cert}, key: key}, nil
}

// ClusterID returns the id of the cluster that the CA was created for.
func (ca *CA) ClusterID() (string, error) {
	for _, uri := range ca.Cert.URIs {
		if uri.Scheme == uriScheme && uri.Path == "" && clusterIDRE.MatchString(uri.Host) {
			return uri.Host, nil
		}
	}
	return "", errors.New("the CA does not name a cluster: it was not created by dtask")
}

// ReplicaRequest says what a certificate is for.
type ReplicaRequest struct {
	ServerID string
	// Hosts are the DNS names and IP addresses under which others reach the replica.
	// dtask does not check them; browsers and Prometheus do. Optional.
	Hosts []string
	// Key is the replica's public key.
	Key crypto.PublicKey
	// ClusterID is the cluster. Default: the one that the CA was created for.
	ClusterID string
	// Validity is how long the certificate is valid, at least an hour and at most as long
	// as the CA. Default: DefaultValidity, or as long as the CA if that ends earlier.
	Validity time.Duration
}

// IssueReplica issues the certificate of a replica.
func (ca *CA) IssueReplica(r ReplicaRequest, now time.Time) (_ *x509.Certificate, err error) {
	if !serverIDRE.MatchString(r.ServerID) {
		return nil, fmt.Errorf("invalid server id %q: must be 1 to 63 letters, digits, dots, - and _", r.ServerID)
	}
	if r.ClusterID == "" {
		if r.ClusterID, err = ca.ClusterID(); err != nil {
			return nil, err
		}
	}
	if !clusterIDRE.MatchString(r.ClusterID) {
		return nil, fmt.Errorf("invalid cluster id %q: must be 32 hexadecimal digits", r.ClusterID)
	}
	end := now.Add(r.Validity)
	if r.Validity == 0 {
		r.Validity = min(DefaultValidity, ca.Cert.NotAfter.Sub(now))
		end = now.Add(r.Validity)
	}
	if r.Validity < time.Hour || end.After(ca.Cert.NotAfter) {
		return nil, fmt.Errorf("invalid validity %s: must be at least 1h, and the CA expires at %s", r.Validity, formatTime(ca.Cert.NotAfter))
	}
	template := &x509.Certificate{
		SerialNumber: serialNumber(), Subject: pkix.Name{CommonName: "dtask replica " + r.ServerID},
		NotBefore: now.Add(-backdate), NotAfter: end, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{replicaURI(r.ClusterID, r.ServerID)},
	}
	for _, host := range r.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if isDNSName(host) {
			template.DNSNames = append(template.DNSNames, host)
		} else {
			return nil, fmt.Errorf("invalid host %q: must be a DNS name or an IP address, without a port", host)
		}
	}
	cert, err := sign(template, ca.Cert, r.Key, ca.key)
	if err != nil {
		return nil, fmt.Errorf("issuing the certificate of replica %s: %w", r.ServerID, err)
	}
	return cert, nil
}

// NewKey creates a P-256 key.
func NewKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("creating a key: %w", err)
	}
	return key, nil
}

// OpenKey returns the key of a replica for a certificate in a directory: tls.key, or a new
// one if that is missing. A renewed certificate keeps its key, which the cluster may have
// recorded. It writes nothing.
func OpenKey(dir string) (crypto.Signer, error) {
	path := filepath.Join(dir, KeyFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return NewKey()
	}
	return readKey(path)
}

// Save writes ca.crt and ca.key to a directory, which is created if it does not exist. It
// replaces neither: the key of a CA exists once.
func (ca *CA) Save(dir string) error {
	for _, name := range []string{CAKeyFile, CAFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			if err == nil {
				err = errors.New("it exists; a new CA would make all certificates of the old one useless: choose another directory")
			}
			return fmt.Errorf("writing %s: %w", filepath.Join(dir, name), err)
		}
	}
	keyPEM, err := encodeKey(ca.key)
	if err != nil {
		return err
	}
	if err := makeDir(dir); err != nil {
		return err
	}
	if err := createFile(filepath.Join(dir, CAKeyFile), keyPEM, 0o600); err != nil {
		return err
	}
	return createFile(filepath.Join(dir, CAFile), encodeCerts(ca.Cert), 0o644)
}

// LoadCA reads ca.crt and ca.key.
func LoadCA(dir string) (*CA, error) {
	certs, err := readCerts(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, err
	}
	keyFile := filepath.Join(dir, CAKeyFile)
	key, err := readKey(keyFile)
	if err != nil {
		return nil, err
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: must be an ECDSA key", keyFile)
	}
	for _, cert := range Anchors(certs) { // ca.crt may have several while a CA is being replaced
		if cert.IsCA && ec.PublicKey.Equal(cert.PublicKey) {
			return &CA{Cert: cert, Roots: certs, key: ec}, nil
		}
	}
	return nil, fmt.Errorf("%s is not the key of a CA in %s: both must be from the same dtaskctl tls init", keyFile, CAFile)
}

// sign creates a certificate and parses it.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func serialNumber() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[0] &= 0x7f           // positive
	b[15] |= 1             // not zero
	return new(big.Int).SetBytes(b[:])
}
