package backup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"filippo.io/age"
)

// encryptedMagic begins files in the format of age.
const encryptedMagic = "age-encryption.org/"

// Recipients are the public keys of age of those who can read a backup.
type Recipients []age.Recipient

// Identities are the secret keys of age that can read a backup.
type Identities []age.Identity

// ErrEncrypted is returned for a backup that is encrypted, without identities.
var ErrEncrypted = errors.New("it is encrypted: name the file with the secret key of a recipient (--identity)")

// errOtherRecipients is returned for a backup that is encrypted, but not to the identities.
var errOtherRecipients = errors.New("it is encrypted to other recipients: none of the identities can read it")

// ParseRecipients parses public keys: age1…, or age1pq1… of hybrid ones, which can't be mixed
// with others. The error does not have what was parsed: it may be a secret key.
func ParseRecipients(keys []string) (to Recipients, err error) {
	hybrid := 0
	for i, key := range keys {
		parsed, err := age.ParseRecipients(strings.NewReader(key))
		switch {
		case strings.HasPrefix(strings.ToUpper(key), "AGE-SECRET-KEY-"):
			return nil, errors.New("that is a secret key: give its public key, which age-keygen -y prints")
		case err != nil || len(parsed) != 1:
			return nil, fmt.Errorf("number %d must be a public key of age, such as age1…", i+1)
		}
		if _, is := parsed[0].(*age.HybridRecipient); is {
			hybrid++
		}
		to = append(to, parsed[0])
	}
	if hybrid > 0 && hybrid < len(to) {
		return nil, errors.New("post-quantum keys (age1pq1…) can't be mixed with others")
	}
	return to, nil
}

// ReadIdentities reads a file with secret keys, one per line, as age-keygen writes it.
func ReadIdentities(path string) (Identities, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("opening the identities: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	list, err := age.ParseIdentities(file)
	if err != nil {
		return nil, fmt.Errorf("%s: not a file of identities: it must have secret keys as age-keygen writes them, AGE-SECRET-KEY-…, without a passphrase", path)
	}
	return list, nil
}

// ownIdentity makes an identity for one file, and its recipient, which may be one of a file
// with these.
func (to Recipients) ownIdentity() (age.Identity, age.Recipient, error) {
	if _, hybrid := to[0].(*age.HybridRecipient); hybrid {
		own, err := age.GenerateHybridIdentity()
		if err != nil {
			return nil, nil, fmt.Errorf("making a key: %w", err)
		}
		public := own.Recipient()
		return own, public, nil
	}
	own, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	public := own.Recipient()
	return own, public, nil
}

// Encrypt returns a writer that encrypts to recipients, of which there must be some. Nothing
// is written to out before the first byte is. The caller calls Close, which does not close
// out. Not safe for concurrent use.
func Encrypt(out io.Writer, to Recipients) io.WriteCloser { return &encrypter{out: out, to: to} }

type encrypter struct {
	out io.Writer
	to  Recipients
	enc io.WriteCloser // nil until the first byte
}

// Write implements io.Writer.
func (e *encrypter) Write(b []byte) (int, error) {
	if e.enc == nil {
		enc, err := age.Encrypt(e.out, e.to...)
		if err != nil {
			return 0, err
		}
		e.enc = enc
	}
	return e.enc.Write(b)
}

// Close writes the end.
func (e *encrypter) Close() error {
	if e.enc == nil {
		return nil
	}
	return e.enc.Close()
}

// Decrypt returns what was encrypted. A file that is not encrypted is returned as it is, also
// with identities. The error is ErrEncrypted for one that is, without identities.
func Decrypt(from io.Reader, with Identities) (plain io.Reader, encrypted bool, err error) {
	buffered := bufio.NewReaderSize(from, readBuffer)
	switch {
	case !isEncrypted(buffered):
		return buffered, false, nil
	case len(with) == 0:
		return nil, true, ErrEncrypted
	}
	decrypted, err := age.Decrypt(buffered, with...)
	if _, other := errors.AsType[*age.NoIdentityMatchError](err); other {
		return nil, true, errOtherRecipients
	}
	if err != nil {
		return nil, true, decryption(err)
	}
	return decrypter{decrypted}, true, nil
}

type decrypter struct{ io.Reader }

// Read implements io.Reader.
func (d decrypter) Read(b []byte) (int, error) {
	n, err := d.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = decryption(err)
	}
	return n, err
}

// decryption explains an error of age: that of the file, or of its contents.
func decryption(err error) error {
	_, ofFile := errors.AsType[*fs.PathError](err)
	switch {
	case ofFile:
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: save it again, or use another one", ErrTruncated)
	}
	return damaged("it was cut or changed after it was encrypted")
}
