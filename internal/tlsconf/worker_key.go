package tlsconf

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dtask/dtask/internal/durable"
)

// WorkerKeyFile has a worker's key and its certificate. One file: a process that is
// killed leaves both or none.
const WorkerKeyFile = "worker.pem"

// OpenWorkerKey returns the key of a worker, in a certificate that it signed itself. It
// creates worker.pem in an existing directory once, readable by the owner only, and reads
// it from then on. The certificate never expires: the cluster knows the hash of the key,
// and revokes the key by forgetting it.
func OpenWorkerKey(dir string) (tls.Certificate, error) {
	path := filepath.Join(dir, WorkerKeyFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		data, err := newWorkerKey()
		if err != nil {
			return tls.Certificate{}, err
		}
		// Of two processes that start together, one creates it, and both read it.
		if err := createFile(path, data, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return tls.Certificate{}, err
		}
	}
	return readWorkerKey(path)
}

// nextWorkerKeyFile has the key that replaces the one in worker.pem, until the cluster has
// replaced it.
const nextWorkerKeyFile = WorkerKeyFile + ".next"

// NextWorkerKey returns the key that replaces the one of OpenWorkerKey, and creates it if it
// does not exist.
func NextWorkerKey(dir string) (tls.Certificate, error) {
	path := filepath.Join(dir, nextWorkerKeyFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		data, err := newWorkerKey()
		if err != nil {
			return tls.Certificate{}, err
		}
		if err := createFile(path, data, 0o600); err != nil {
			return tls.Certificate{}, err
		}
	}
	return readWorkerKey(path)
}

// UseNextWorkerKey makes the key of NextWorkerKey that of OpenWorkerKey.
func UseNextWorkerKey(dir string) error {
	if err := os.Rename(filepath.Join(dir, nextWorkerKeyFile), filepath.Join(dir, WorkerKeyFile)); err != nil {
		return fmt.Errorf("replacing the worker's key: %w", err)
	}
	if err := durable.SyncDir(dir); err != nil {
		return fmt.Errorf("syncing directory %s: %w", dir, err)
	}
	return nil
}

// IsReplacingWorkerKey reports whether NextWorkerKey has made a key that does not replace
// the old one yet: a process ended in between.
func IsReplacingWorkerKey(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, nextWorkerKeyFile))
	return err == nil
}

// WorkerKeyAge returns how long ago the key of a worker was made.
func WorkerKeyAge(dir string, now time.Time) time.Duration {
	info, err := os.Stat(filepath.Join(dir, WorkerKeyFile))
	if err != nil {
		return 0
	}
	return now.Sub(info.ModTime())
}

func newWorkerKey() ([]byte, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	cert, err := selfSign("dtask worker", key)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return append(keyPEM, encodeCerts(cert)...), nil
}

// selfSign returns a certificate of a key that proves its possession and nothing else. It
// never expires.
func selfSign(name string, key crypto.Signer) (*x509.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: serialNumber(), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Unix(0, 0),
		NotAfter:  time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // "never", RFC 5280 §4.1.2.5
		KeyUsage:  x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{clientUsage}, BasicConstraintsValid: true,
	}
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("creating the certificate of a %s: %w", name, err)
	}
	return cert, nil
}

// SelfSigned returns a pair by which a coordinator that joins proves that it has a key,
// until the cluster has given it a certificate.
func SelfSigned(key crypto.Signer) (tls.Certificate, error) {
	cert, err := selfSign("dtask coordinator that joins", key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}

func readWorkerKey(path string) (tls.Certificate, error) {
	data, err := readFile(path, true)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		if _, incomplete := blocks(data); incomplete != nil {
			err = incomplete
		}
		return tls.Certificate{}, fmt.Errorf("reading %s: %w; if the key is lost, remove the file and let the worker join again", path, err)
	}
	return pair, nil
}
