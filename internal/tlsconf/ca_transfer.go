package tlsconf

import (
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// KeyDER returns the private key of the CA in PKCS #8, for a coordinator that joins.
func (ca *CA) KeyDER() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(ca.key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key of the CA: %w", err)
	}
	return der, nil
}

// ParseCA is the inverse of KeyDER: it returns the CA among certificates that has a key.
func ParseCA(certs []*x509.Certificate, keyDER []byte) (*CA, error) {
	parsed, err := x509.ParsePKCS8PrivateKey(keyDER)
	if err != nil {
		return nil, fmt.Errorf("parsing the key of the CA: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the key of the CA is not an ECDSA key")
	}
	for _, cert := range Anchors(certs) {
		if cert.IsCA && key.PublicKey.Equal(cert.PublicKey) {
			return &CA{Cert: cert, Roots: certs, key: key}, nil
		}
	}
	return nil, errors.New("the key does not belong to a CA of the cluster")
}

// HasCAKey reports whether a directory has the key of a CA.
func HasCAKey(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, CAKeyFile))
	return err == nil && info.Mode().IsRegular()
}
