package dtaskworker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/program"
)

// maxJoinString bounds what is read of a file with a join string, in bytes.
const maxJoinString = 8 << 10

// readJoin moves a join string from the list of --join to a setting of its own, so that
// it is not logged with the other settings. - reads it from standard input, and @FILE from
// a file.
func (s *settings) readJoin(stdin io.Reader) error {
	isSecret := func(text string) bool {
		return text == "-" || strings.HasPrefix(text, "@") || client.IsJoinString(text)
	}
	var secret string
	for _, text := range s.worker.Join {
		switch {
		case !isSecret(text):
		case len(s.worker.Join) > 1:
			return &program.UsageError{Err: errors.New("invalid --join: a join string has the addresses, and must be alone")}
		default:
			secret = text
		}
	}
	if secret == "" {
		return nil
	}
	s.worker.Join = nil
	if secret != "-" && secret[0] != '@' {
		s.worker.JoinString = client.Secret(secret)
		return nil
	}
	text, err := readSecret(secret, stdin)
	if err != nil {
		return &program.UsageError{Err: fmt.Errorf("reading --join: %w", err)}
	}
	s.worker.JoinString = client.Secret(strings.TrimSpace(text))
	if s.worker.JoinString == "" {
		return &program.UsageError{Err: errors.New("reading --join: missing join string")}
	}
	return nil
}

// readSecret reads the text of - or @FILE.
func readSecret(source string, stdin io.Reader) (string, error) {
	if path, ok := strings.CutPrefix(source, "@"); ok {
		file, err := os.Open(path) //nolint:gosec // named by the operator
		if err != nil {
			return "", err //nolint:wrapcheck // names operation and file
		}
		defer func() { _ = file.Close() }() // nothing was written
		stdin = file
	}
	text, err := io.ReadAll(io.LimitReader(stdin, maxJoinString))
	return string(text), err
}
