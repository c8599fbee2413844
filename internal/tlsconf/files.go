package tlsconf

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/dtask/dtask/internal/durable"
)

// The files of a directory. They have the names that Kubernetes gives to a secret of type
// kubernetes.io/tls.
const (
	CertFile  = "tls.crt" // the replica's certificate, with intermediate ones if there are any
	KeyFile   = "tls.key" // its private key
	CAFile    = "ca.crt"  // the CAs that this replica trusts
	CAKeyFile = "ca.key"  // the key of the CA; only where certificates are issued
)

// maxFile is the largest file that is read, in bytes. A certificate has less than 1 KiB.
const maxFile = 256 << 10

// readFile reads a regular file; links are followed. A secret one must be readable by its
// owner only, or by its group if root owns it: Kubernetes mounts secrets so.
func readFile(path string, secret bool) (data []byte, err error) {
	info, err := os.Stat(path) // a FIFO would block in Open
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("reading %s: it is %s, and must be a file", path, kindOf(info.Mode()))
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, plainPathError(err))
	}
	file, err := os.Open(path) //nolint:gosec // the operator's path
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, plainPathError(err))
	}
	defer func() { _ = file.Close() }() // nothing was written
	if info, err = file.Stat(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, plainPathError(err))
	}
	if err := checkMode(info); secret && err != nil {
		return nil, fmt.Errorf("reading %s: %w: run chmod 600 %s", path, err, path)
	}
	data, err = io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, plainPathError(err))
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("reading %s: it has more than %d bytes", path, maxFile)
	}
	return data, nil
}

// checkMode returns an error if others than the owner can read a key.
func checkMode(info fs.FileInfo) error {
	if runtime.GOOS == "windows" {
		return nil // it has no such bits
	}
	mode := info.Mode().Perm()
	switch {
	case mode&0o007 != 0:
		return fmt.Errorf("the key has mode %04o, so every user of this machine can use it", mode)
	case mode&0o030 != 0 || mode&0o040 != 0 && !ownedByRoot(info):
		return fmt.Errorf("the key has mode %04o, so its group can use it, which is allowed for files that root owns and the group can only read", mode)
	}
	return nil
}

func kindOf(mode fs.FileMode) string {
	if mode.IsDir() {
		return "a directory"
	}
	return "neither a file nor a directory"
}

// plainPathError removes the path, which the caller's message has.
func plainPathError(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func readCerts(path string) ([]*x509.Certificate, error) {
	data, err := readFile(path, false)
	if err != nil {
		return nil, err
	}
	certs, err := parseCerts(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return certs, nil
}

func readKey(path string) (crypto.Signer, error) {
	data, err := readFile(path, true)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return key, nil
}

func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return fmt.Errorf("creating directory %s: it is a file", dir)
	}
	return durable.MakeDir(dir)
}

// createFile creates a file with its whole content, durably, or fails if it exists. No
// reader sees a part of it.
func createFile(path string, data []byte, mode fs.FileMode) error {
	err := placeFile(path, data, mode, os.Link)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("writing %s: %w", path, fs.ErrExist)
	}
	return err
}

// replaceFile is createFile for a file that may exist.
func replaceFile(path string, data []byte, mode fs.FileMode) error {
	return placeFile(path, data, mode, os.Rename)
}

// placeFile writes a temporary file and gives it its name.
func placeFile(path string, data []byte, mode fs.FileMode, name func(from, to string) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, plainPathError(err))
	}
	defer func() { _ = os.Remove(file.Name()) }() // renamed, or useless
	_, err = io.Copy(file, bytes.NewReader(data))
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := name(file.Name(), path); err != nil {
		if link, ok := errors.AsType[*os.LinkError](err); ok {
			err = link.Err
		}
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := durable.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("syncing directory %s: %w", filepath.Dir(path), err)
	}
	return nil
}
