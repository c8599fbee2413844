package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/worker/process"
)

// attemptSecrets are the secrets that an attempt names, as they were when it started. Only
// its executor uses them.
type attemptSecrets struct {
	contents map[string][]byte // by name; of a task with a handler
	paths    map[string]string // of the copies, by name; of a command
	dir      string            // with the copies
}

// takeSecrets reads the secrets that a task names; nil if it names none. A command gets
// copies, which the caller must remove.
func (w *Worker) takeSecrets(a *attempt) (*attemptSecrets, error) {
	names := a.policy.GetSecrets()
	if len(names) == 0 {
		return nil, nil //nolint:nilnil // most tasks name none
	}
	s := &attemptSecrets{contents: make(map[string][]byte, len(names))}
	for _, name := range names {
		contents, err := w.secrets.read(name)
		if err != nil {
			return nil, err
		}
		s.contents[name] = contents
	}
	if a.policy.GetType() != "" {
		return s, nil
	}
	s.dir = w.dirs.secretCopies(a.ref)
	if err := s.copy(a.policy, w.userOf(a)); err != nil {
		s.remove(w, a)
		return nil, err
	}
	s.contents = nil
	return s, nil
}

// copy writes a file for each secret, which only the command's user can read.
func (s *attemptSecrets) copy(p *dtaskv1.TaskPolicy, user *process.User) error {
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return fmt.Errorf("copying secrets: %w", err)
	}
	s.paths = make(map[string]string, len(s.contents))
	for _, name := range p.GetSecrets() {
		path := filepath.Join(s.dir, name)
		err := writeSecret(path, s.contents[name])
		if err == nil {
			err = user.Own(path)
		}
		if err != nil {
			return fmt.Errorf("copying secret %s: %w", name, err)
		}
		s.paths[name] = path
	}
	if err := user.Own(s.dir); err != nil { // last: until now, only the worker can change it
		return fmt.Errorf("copying secrets: %w", err)
	}
	return nil
}

// writeSecret creates a file that its owner can read.
func writeSecret(path string, contents []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400) //nolint:gosec // in the worker's own directory
	if err != nil {
		return err //nolint:wrapcheck // has the path
	}
	_, err = file.Write(contents)
	return errors.Join(err, file.Close())
}

// files returns the paths of a command's copies by name; nil if it has none.
func (s *attemptSecrets) files() map[string]string {
	if s == nil {
		return nil
	}
	return s.paths
}

// remove removes the copies when the attempt has ended.
func (s *attemptSecrets) remove(w *Worker, a *attempt) {
	if s == nil || s.dir == "" {
		return
	}
	if err := os.RemoveAll(s.dir); err != nil {
		w.log.Error("copies of secrets not removed; remove their directory", a.attrs(), slog.Any("err", err))
	}
}

// Secret returns a copy of a secret's contents, as they were when the attempt started. The
// task must name it in secrets. Never put it into a result, an error or a log.
func (t *Task) Secret(name string) ([]byte, error) {
	if t.worker == nil {
		return nil, errors.New("worker: task without a worker has no secrets")
	}
	if s := t.attempt.secrets; s != nil {
		if contents, ok := s.contents[name]; ok {
			return slices.Clone(contents), nil
		}
	}
	return nil, fmt.Errorf("secret %s: task %s does not name it: add it to secrets of the task", name, t.ID)
}
