package tlsconf

import (
	"crypto"
	"crypto/x509"
	"errors"
	"time"
)

// ShouldRenew reports whether half of the certificate's time has passed, or whether it is
// not valid yet by this machine's clock, which was wrong when it was issued. A certificate
// that ends with its CA is not renewed: the new one would end at the same time.
func (r *Replica) ShouldRenew(now time.Time) bool {
	if r.endsWithCA() && !now.Before(r.Cert.NotBefore) {
		return false
	}
	half := r.Cert.NotBefore.Add(r.Cert.NotAfter.Sub(r.Cert.NotBefore) / 2)
	return !now.Before(half) || now.Before(r.Cert.NotBefore)
}

// endsWithCA reports whether the certificate is valid as long as its CA.
func (r *Replica) endsWithCA() bool { return !r.Cert.NotAfter.Before(r.CACert().NotAfter) }

// CACert returns the CA that issued the certificate.
func (r *Replica) CACert() *x509.Certificate { return r.chain[len(r.chain)-1] }

// Renew issues a certificate for the same key, hosts and validity, and writes it to the
// directory that has the certificate and the key of the CA. It is valid for less if the CA
// ends earlier. The key stays, so that what others have recorded of this replica stays
// true.
func (r *Replica) Renew(dir string, now time.Time) error {
	ca, err := LoadCA(dir)
	if err != nil {
		return err
	}
	cert, key, err := r.reissue(ca, now)
	if err != nil {
		return err
	}
	return Save(dir, cert, key, ca.Roots...)
}

// reissue issues a certificate for the same key and hosts.
func (r *Replica) reissue(ca *CA, now time.Time) (*x509.Certificate, crypto.Signer, error) {
	key, ok := r.pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, errors.New("the key of the certificate can't sign")
	}
	hosts := append([]string(nil), r.Cert.DNSNames...)
	for _, ip := range r.Cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	validity := r.Cert.NotAfter.Sub(r.Cert.NotBefore) - backdate
	if r.endsWithCA() { // it was cut short
		validity = DefaultValidity
	}
	cert, err := ca.IssueReplica(ReplicaRequest{
		ServerID: r.ServerID, ClusterID: r.ClusterID, Hosts: hosts, Key: key.Public(),
		Validity: min(validity, ca.Cert.NotAfter.Sub(now)),
	}, now)
	return cert, key, err
}
