package tlsconf

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// Anchors returns the certificates of a bundle that are to be trusted: all but the
// cross-certificates. A cross-certificate has the key of a CA that has a certificate of
// its own in the bundle, and the signature of the CA before: those who trust only that one
// verify by it what the new CA issues.
func Anchors(bundle []*x509.Certificate) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(bundle), func(c *x509.Certificate) bool { return isCross(c, bundle) })
}

// isCross reports whether a certificate is a cross-certificate. Signatures are checked only
// if several certificates have the same key: this is a part of every handshake.
func isCross(cert *x509.Certificate, bundle []*x509.Certificate) bool {
	return slices.ContainsFunc(bundle, func(c *x509.Certificate) bool {
		return !c.Equal(cert) && bytes.Equal(c.RawSubjectPublicKeyInfo, cert.RawSubjectPublicKeyInfo) && isSelfIssued(c) && !isSelfIssued(cert)
	})
}

// isSelfIssued reports whether a certificate has the signature of its own key.
func isSelfIssued(cert *x509.Certificate) bool {
	return cert.IsCA && cert.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature) == nil
}

// presented returns what a replica sends in a handshake: the chain of its certificate, the
// cross-certificates, by which those who know only the CA before verify it, and all CAs,
// of which a client may know only the hash of the key. A client learns the CAs of the
// cluster by that.
func presented(chain, bundle []*x509.Certificate) []*x509.Certificate {
	root := chain[len(chain)-1]
	list := slices.Clone(chain[:len(chain)-1])
	for _, cert := range bundle {
		if isCross(cert, bundle) {
			list = append(list, cert)
		}
	}
	for _, cert := range Anchors(bundle) {
		if !cert.Equal(root) {
			list = append(list, cert)
		}
	}
	return append(list, root) // last: messages name its key
}

// PresentedRoots returns the CAs among the certificates that a replica presents.
func PresentedRoots(certs []*x509.Certificate) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(certs), func(c *x509.Certificate) bool { return !isSelfIssued(c) })
}

// ParseBundle parses certificates of CAs in DER.
func ParseBundle(ders [][]byte) ([]*x509.Certificate, error) {
	bundle := make([]*x509.Certificate, 0, len(ders))
	for _, der := range ders {
		cert, err := x509.ParseCertificate(der)
		if err == nil && !cert.IsCA {
			err = errors.New("it is not a CA")
		}
		if err != nil {
			return nil, fmt.Errorf("invalid certificate of a CA: %w", err)
		}
		bundle = append(bundle, cert)
	}
	return bundle, nil
}

// BundleDER is the inverse of ParseBundle.
func BundleDER(bundle []*x509.Certificate) [][]byte {
	ders := make([][]byte, 0, len(bundle))
	for _, cert := range bundle {
		ders = append(ders, cert.Raw)
	}
	return ders
}

// BundleHash identifies the trusted CAs of a bundle, in any order.
func BundleHash(bundle []*x509.Certificate) [32]byte {
	var hashes [][]byte
	for _, cert := range Anchors(bundle) {
		hash := sha256.Sum256(cert.Raw)
		hashes = append(hashes, hash[:])
	}
	slices.SortFunc(hashes, bytes.Compare)
	return sha256.Sum256(bytes.Join(slices.CompactFunc(hashes, bytes.Equal), nil))
}

// EncodeRoots returns certificates in PEM.
func EncodeRoots(certs []*x509.Certificate) string { return string(encodeCerts(certs...)) }

// DecodeRoots parses certificates of CAs in PEM; other blocks and texts are ignored.
func DecodeRoots(text string) ([]*x509.Certificate, error) {
	var ders [][]byte
	for data := []byte(text); len(data) > 0; {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		ders, data = append(ders, block.Bytes), rest
	}
	return ParseBundle(ders)
}

// sameBundle reports whether two bundles are the same.
func sameBundle(a, b []*x509.Certificate) bool {
	return slices.EqualFunc(a, b, func(x, y *x509.Certificate) bool { return x.Equal(y) })
}
