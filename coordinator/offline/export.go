package offline

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dtask/dtask/internal/durable"
	"github.com/dtask/dtask/spec"
)

// Export writes each missing job into a directory, which it creates, for dtaskctl submit:
// as a job file, or, if no job file can have the job, as a message (spec.FormatMessage).
// It records the files in the report. It overwrites nothing.
func (r *MissingReport) Export(dir string) error {
	if err := durable.MakeDir(dir); err != nil {
		return err
	}
	for i := range r.Missing {
		if err := r.Missing[i].export(dir); err != nil {
			return fmt.Errorf("exporting job %s: %w", r.Missing[i].ID, err)
		}
	}
	return durable.SyncDir(dir)
}

func (j *MissingJob) export(dir string) error {
	if j.spec == nil {
		return nil // Problem says why
	}
	name := filepath.Join(dir, fmt.Sprintf("job-%s-%s.json", j.ID, j.Name))
	text, err := spec.Format(j.spec)
	if err != nil {
		name = filepath.Join(dir, fmt.Sprintf("job-%s-%s%s", j.ID, j.Name, spec.MessageSuffix))
		if text, err = spec.FormatMessage(j.spec); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the operator names the directory
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	j.File = name
	return errors.Join(err, file.Close())
}
