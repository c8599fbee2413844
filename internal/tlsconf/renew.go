package tlsconf

import (
	"crypto"
	"errors"
	"time"
)

// ShouldRenew reports whether half of the certificate's time has passed, or whether it is
// not valid yet by this machine's clock, which was wrong when it was issued.
func (r *Replica) ShouldRenew(now time.Time) bool {
	half := r.Cert.NotBefore.Add(r.Cert.NotAfter.Sub(r.Cert.NotBefore) / 2)
	return !now.Before(half) || now.Before(r.Cert.NotBefore)
}

// Renew issues a certificate for the same key, hosts and validity, and writes it to the
// directory that has the certificate and the key of the CA. The key stays, so that what
// others have recorded of this replica stays true.
func (r *Replica) Renew(dir string, now time.Time) error {
	ca, err := LoadCA(dir)
	if err != nil {
		return err
	}
	key, ok := r.pair.PrivateKey.(crypto.Signer)
	if !ok {
		return errors.New("the key of the certificate can't sign")
	}
	hosts := append([]string(nil), r.Cert.DNSNames...)
	for _, ip := range r.Cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	cert, err := ca.IssueReplica(ReplicaRequest{
		ServerID: r.ServerID, ClusterID: r.ClusterID, Hosts: hosts, Key: key.Public(),
		Validity: r.Cert.NotAfter.Sub(r.Cert.NotBefore) - backdate,
	}, now)
	if err != nil {
		return err
	}
	return Save(dir, cert, key, r.Roots...)
}
