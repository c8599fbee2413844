package cli

import (
	"io"

	"github.com/spf13/pflag"

	"github.com/dtask/dtask/client"
)

// bindSecret binds the flag --out of a command that makes a secret, which is shown only once.
func (f *outFile) bindSecret(fl *pflag.FlagSet, what string) {
	fl.StringVar(&f.path, "out", "", "`FILE` for the "+what+", which only you can read (default: standard output)")
}

// keepSecret writes a secret to the file.
func (f *outFile) keepSecret(secret client.Secret) error {
	return f.keep(func(w io.Writer) error {
		_, err := io.WriteString(w, secret.Reveal()+"\n")
		return err
	})
}

// deliver prints a secret alone on standard output, or in a document, or writes it to the
// file. doc makes the document; it gets an empty text if the secret is in the file.
// explain prints what the user should know, to standard error. undo says how to get rid of
// a secret that could not be delivered.
func (a *app) deliver(f *outFile, secret client.Secret, doc func(text string) any, explain func(), undo string) error {
	text := secret.Reveal()
	var err error
	if f.path != "" {
		err = f.keepSecret(secret)
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
