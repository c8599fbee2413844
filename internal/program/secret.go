package program

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxSecret bounds a secret that is read from a file, in bytes.
const maxSecret = 64 << 10

// ReadSecret returns the secret that an argument names: - reads stdin, @FILE reads a file,
// anything else is the secret itself. Space around it is removed. Errors do not contain
// the secret.
func ReadSecret(argument string, stdin io.Reader) (string, error) {
	var from io.Reader
	path, isFile := strings.CutPrefix(argument, "@")
	switch {
	case argument == "-":
		from, path = stdin, "stdin"
	case isFile:
		file, err := os.Open(path) //nolint:gosec // the user names it
		if err != nil {
			return "", fmt.Errorf("reading a secret: %w", err)
		}
		defer func() { _ = file.Close() }() // read only
		from = file
	default:
		return strings.TrimSpace(argument), nil
	}
	data, err := io.ReadAll(io.LimitReader(from, maxSecret+1))
	switch text := strings.TrimSpace(string(data)); {
	case err != nil:
		return "", fmt.Errorf("reading a secret from %s: %w", path, err)
	case len(data) > maxSecret:
		return "", fmt.Errorf("reading a secret from %s: it has more than %d bytes", path, maxSecret)
	case text == "":
		return "", errors.New("reading a secret from " + path + ": it is empty")
	default:
		return text, nil
	}
}
