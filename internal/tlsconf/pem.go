package tlsconf

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
)

const (
	certBlock = "CERTIFICATE"
	keyBlock  = "PRIVATE KEY"
)

var dnsNameRE = regexp.MustCompile(`^(\*\.)?[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,62})(\.[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,62}))*\.?$`)

func isDNSName(host string) bool { return len(host) <= 253 && dnsNameRE.MatchString(host) }

func encodeCerts(certs ...*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range certs {
		_ = pem.Encode(&out, &pem.Block{Type: certBlock, Bytes: c.Raw}) // a buffer takes everything
	}
	return out.Bytes()
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// blocks returns the PEM blocks of a file's content, which must be complete.
func blocks(data []byte) (list []*pem.Block, err error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("the file is empty: wait until it is written, or issue the certificate again")
	}
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		list, data = append(list, block), rest
	}
	if len(list) == 0 || bytes.Contains(data, []byte("-----BEGIN")) {
		return nil, errors.New("the file ends within a PEM block or has none: it is half written or not PEM; issue the certificate again")
	}
	return list, nil
}

// parseCerts parses certificates; other blocks, such as keys, are ignored.
func parseCerts(data []byte) ([]*x509.Certificate, error) {
	list, err := blocks(data)
	if err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	for _, block := range list {
		if block.Type != certBlock {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parsing a certificate: %w", err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("the file has no certificate: it must have a PEM block CERTIFICATE")
	}
	return certs, nil
}

// parseKey parses the first private key.
func parseKey(data []byte) (crypto.Signer, error) {
	list, err := blocks(data)
	if err != nil {
		return nil, err
	}
	for _, block := range list {
		var key any
		switch block.Type {
		case keyBlock:
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("parsing a private key: %w", err)
		}
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
		return nil, errors.New("the key can't sign: it must be an ECDSA or Ed25519 key")
	}
	return nil, errors.New("the file has no private key: it must have a PEM block PRIVATE KEY without a password")
}
