package tlsconf

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// NextCAKeyFile has the key of a CA that this replica has made and the cluster has not
// recorded yet.
const NextCAKeyFile = "ca.key.next"

// CrossSign returns a certificate of another CA of this cluster with the signature of this
// one. It ends with the first of both.
func (ca *CA) CrossSign(next *CA, now time.Time) (*x509.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: serialNumber(), Subject: next.Cert.Subject, SubjectKeyId: next.Cert.SubjectKeyId, AuthorityKeyId: ca.Cert.SubjectKeyId,
		NotBefore: now.Add(-backdate), NotAfter: next.Cert.NotAfter,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: next.Cert.KeyUsage, URIs: next.Cert.URIs,
	}
	if ca.Cert.NotAfter.Before(template.NotAfter) {
		template.NotAfter = ca.Cert.NotAfter
	}
	cert, err := sign(template, ca.Cert, next.Cert.PublicKey, ca.key)
	if err != nil {
		return nil, fmt.Errorf("signing the new CA with the old one: %w", err)
	}
	return cert, nil
}

// SaveNext writes the key of the CA to ca.key.next of a directory, readable by the owner
// only. Adopt makes it ca.key.
func (ca *CA) SaveNext(dir string) error {
	data, err := encodeKey(ca.key)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, NextCAKeyFile), data, 0o600)
}

// FindCA returns the CA among the certificates of a bundle whose public key has a hash,
// with its key, which is in ca.key or ca.key.next. The error wraps fs.ErrNotExist if
// neither file has that key.
func FindCA(dir string, bundle []*x509.Certificate, keyHash [32]byte) (*CA, error) {
	for _, name := range []string{CAKeyFile, NextCAKeyFile} {
		key, err := readKey(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, name), err)
		}
		if ca, err := ParseCA(bundle, der); err == nil && KeyHash(ca.Cert) == keyHash {
			return ca, nil
		}
	}
	return nil, fmt.Errorf("the key of the CA %s is not in %s: %w", hashText(keyHash), dir, fs.ErrNotExist)
}

// Adopted reports whether the replica trusts a bundle and no other CA, and has a
// certificate of its first CA.
func (r *Replica) Adopted(bundle []*x509.Certificate) bool {
	return sameBundle(r.Bundle, bundle) && len(bundle) > 0 && r.IsOf(bundle[0])
}

// IsOf reports whether a CA issued the certificate.
func (r *Replica) IsOf(ca *x509.Certificate) bool { return KeyHash(r.CACert()) == KeyHash(ca) }

// IsReplacing reports whether the CA is being replaced, and this replica has a certificate of
// the new one, while those of the old one still count.
func (r *Replica) IsReplacing() bool { return len(r.Roots) > 1 && r.IsOf(r.Roots[0]) }

// Adopt writes a bundle to a directory as ca.crt, and the key of its first CA as ca.key.
// It renews the certificate if another CA issued it. A process that is killed between two
// writes leaves files that belong together.
func (r *Replica) Adopt(dir string, ca *CA, now time.Time) error {
	bundle := ca.Roots
	if !r.IsOf(ca.Cert) {
		cert, key, err := r.reissue(ca, now)
		if err != nil {
			return err
		}
		both := slices.Clone(bundle)
		for _, old := range r.Bundle {
			if !slices.ContainsFunc(both, old.Equal) {
				both = append(both, old)
			}
		}
		if err := Save(dir, cert, key, both...); err != nil {
			return err
		}
	}
	if err := ca.replaceKey(dir); err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, CAFile), encodeCerts(bundle...), 0o644)
}

// replaceKey makes ca.key the key of the CA.
func (ca *CA) replaceKey(dir string) error {
	data, err := encodeKey(ca.key)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, CAKeyFile)
	if old, err := readFile(path, true); err != nil || !bytes.Equal(old, data) {
		if err := replaceFile(path, data, 0o600); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(dir, NextCAKeyFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", filepath.Join(dir, NextCAKeyFile), plainPathError(err))
	}
	return nil
}
