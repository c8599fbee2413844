package backup

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"
)

// announcementType is the type of the stanza in the header of an encrypted file that says, in
// plaintext, what the file is. Programs that decrypt files of age ignore it, and notice if it
// was changed.
const announcementType = "dtask-backup"

// announced is what everybody may know of an encrypted file of a Set: which one it is.
func announced(m Manifest) Manifest {
	return Manifest{ClusterID: m.ClusterID, CreatedAt: m.CreatedAt, Version: m.Version, Index: m.Index, Level: m.Level, HistoryAfter: m.HistoryAfter, HistoryTo: m.HistoryTo}
}

// announcing is a recipient whose stanza another one follows.
type announcing struct {
	age.Recipient

	stanza *age.Stanza
}

// announce makes a recipient that announces a file.
func announce(to age.Recipient, m Manifest) (age.Recipient, error) {
	body, err := json.Marshal(announced(m))
	if err != nil {
		return nil, fmt.Errorf("encoding manifest: %w", err)
	}
	return announcing{to, &age.Stanza{Type: announcementType, Body: body}}, nil
}

// WrapWithLabels implements age.RecipientWithLabels. The labels keep recipients apart that
// can't be mixed.
func (a announcing) WrapWithLabels(fileKey []byte) (stanzas []*age.Stanza, labels []string, err error) {
	if r, is := a.Recipient.(age.RecipientWithLabels); is {
		stanzas, labels, err = r.WrapWithLabels(fileKey)
	} else {
		stanzas, err = a.Wrap(fileKey)
	}
	return append(stanzas, a.stanza), labels, err
}

// announcementReader is an identity that reads the announcement of a file, and can't decrypt
// it.
type announcementReader struct {
	found    bool
	manifest Manifest
}

// Unwrap implements age.Identity.
func (r *announcementReader) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	for _, s := range stanzas {
		if s.Type == announcementType && json.Unmarshal(s.Body, &r.manifest) == nil && r.manifest.ClusterID != "" {
			r.found = true
		}
	}
	return nil, age.ErrIncorrectIdentity
}

// errNotAnnounced is returned for an encrypted file of which nothing is known.
var errNotAnnounced = errors.New("it is encrypted, and no backup that was added to a directory")

// Head is what can be read of a file without a key: if it is encrypted, only which cluster it
// is of, when it was made, its version and level, and log indexes.
type Head struct {
	Manifest

	Encrypted bool
}

// ReadHead reads the head of a file in a directory of backups.
func ReadHead(path string) (Head, error) {
	file, err := os.Open(path) //nolint:gosec // in the user's directory
	if err != nil {
		return Head{}, err
	}
	defer func() { _ = file.Close() }() // read only
	h, err := readHead(file)
	if err != nil {
		return Head{}, fmt.Errorf("%s: %w: move it away", path, err)
	}
	return h, nil
}

func readHead(file io.Reader) (Head, error) {
	buffered := bufio.NewReaderSize(file, readBuffer)
	if !isEncrypted(buffered) {
		r, err := NewReader(buffered)
		if err != nil {
			return Head{}, err
		}
		return Head{Manifest: r.Manifest()}, nil
	}
	reader := new(announcementReader)
	_, err := age.Decrypt(buffered, reader)
	if _, read := errors.AsType[*age.NoIdentityMatchError](err); !read && err != nil {
		return Head{}, decryption(err)
	}
	if !reader.found {
		return Head{}, errNotAnnounced
	}
	return Head{reader.manifest, true}, nil
}

// isEncrypted reports whether a stream begins like one in the format of age.
func isEncrypted(b *bufio.Reader) bool {
	start, _ := b.Peek(len(encryptedMagic)) // an error is that of the next read, too
	return string(start) == encryptedMagic
}
