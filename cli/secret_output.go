package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/dtask/dtask/client"
)

// A secretFile is the flag --out of a command that makes a secret, which is shown only
// once: it must be known before the secret is made that the file can be written.
type secretFile struct {
	path    string
	replace bool // the file may exist
	temp    *os.File
}

func (s *secretFile) bind(fl *pflag.FlagSet, what string) {
	fl.StringVar(&s.path, "out", "", "`FILE` for the "+what+", which only you can read (default: standard output)")
}

// open creates the file under a temporary name, if there is to be one. The caller calls
// discard.
func (s *secretFile) open(a *app) (err error) {
	if s.path == "" {
		return nil
	}
	s.path = a.created(s.path)
	if _, err := os.Lstat(s.path); err == nil && !s.replace {
		return usagef("--out %s exists: choose another file, or remove it", s.path)
	}
	s.temp, err = os.CreateTemp(filepath.Dir(s.path), ".dtaskctl-*") // has mode 0600
	if err != nil {
		return fmt.Errorf("writing --out %s: %w", s.path, pathCause(err))
	}
	return nil
}

// keep writes the secret to the file and gives it its name.
func (s *secretFile) keep(secret client.Secret) error {
	_, err := s.temp.WriteString(secret.Reveal() + "\n")
	err = errors.Join(err, s.temp.Sync(), s.temp.Close())
	if err == nil {
		err = os.Rename(s.temp.Name(), s.path)
	}
	if err != nil {
		return fmt.Errorf("writing --out %s: %w", s.path, err)
	}
	s.temp = nil
	return nil
}

// discard removes the temporary file unless it was kept.
func (s *secretFile) discard() {
	if s.temp != nil {
		_ = s.temp.Close()
		_ = os.Remove(s.temp.Name())
	}
}

// deliver prints a secret alone on standard output, or in a document, or writes it to the
// file. doc makes the document; it gets an empty text if the secret is in the file.
// explain prints what the user should know, to standard error. undo says how to get rid of
// a secret that could not be delivered.
func (a *app) deliver(s *secretFile, secret client.Secret, doc func(text string) any, explain func(), undo string) error {
	text := secret.Reveal()
	var err error
	if s.path != "" {
		err = s.keep(secret)
		text = ""
	}
	switch {
	case err != nil:
	case !a.textOutput():
		err = a.print(view{doc: doc(text)})
	case text != "":
		err = a.write([]byte(text+"\n"), nil)
	}
	if err != nil {
		return withHint(err, "the secret is lost: %s", undo)
	}
	explain()
	return nil
}

// pathCause removes the path of a temporary file from an error.
func pathCause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
