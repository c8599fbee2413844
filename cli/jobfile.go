package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"unicode/utf8"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// maxOwner is the longest owner of a job, in bytes.
const maxOwner = 63

// specOptions returns what job files don't say. Unset timeouts and retries stay unset: the
// coordinators have defaults. A user with a token has an identity, to which the job belongs;
// the name that the user has on this machine says nothing more.
func (a *app) specOptions() spec.Options {
	opts := spec.Options{Unfilled: true}
	if !a.hasToken() {
		opts.Owner = clip(owner(a.getenv), maxOwner)
	}
	return opts
}

// owner returns the name of the user, or an empty string if it is unknown.
func owner(getenv func(string) string) string {
	if name := getenv("USER"); name != "" {
		return name
	}
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

// clip shortens s to n bytes without splitting a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// readJobs reads files, or in for "-", of one or several jobs each.
// It returns the faults of all files together.
func readJobs(paths []string, in io.Reader, opts spec.Options) ([]*dtaskv1.JobSpec, error) {
	var (
		jobs   []*dtaskv1.JobSpec
		faults spec.Faults
	)
	for _, path := range paths {
		text, err := readJobFile(path, in)
		if err != nil {
			return nil, err
		}
		more, err := parseJobs(path, text, opts)
		if found, ok := errors.AsType[spec.Faults](err); ok {
			faults = append(faults, found...)
		} else if err != nil {
			return nil, err
		}
		jobs = append(jobs, more...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return jobs, nil
}

// parseJobs parses a file of jobs: one that dtaskd inspect exported, or a job file.
func parseJobs(path string, text []byte, opts spec.Options) ([]*dtaskv1.JobSpec, error) {
	if !spec.IsMessage(path) {
		return spec.ParseAll(path, text, opts) //nolint:wrapcheck // faults name the file
	}
	if overrides(opts) {
		return nil, usagef("--name, --priority, --label and --set cannot be used with %s: it has a job as it was submitted", path)
	}
	job, err := spec.ParseMessage(path, text)
	return []*dtaskv1.JobSpec{job}, err //nolint:wrapcheck // as above
}

// readJobFile reads a job file, or in for "-".
func readJobFile(path string, in io.Reader) ([]byte, error) {
	limit := int64(spec.MaxFileBytes)
	if spec.IsMessage(path) {
		limit = spec.MaxMessageBytes
	}
	text, err := readInput(path, in, limit)
	if err != nil {
		return nil, &commandError{
			err: err, code: exitJobFile,
			hint: "use the path of a job file, or - for standard input",
		}
	}
	return text, nil
}

// readInput reads a file, or in for "-". It returns at most limit+1 bytes, so that
// the caller can report a larger file.
func readInput(path string, in io.Reader, limit int64) ([]byte, error) {
	if path != "-" {
		f, err := os.Open(path) //nolint:gosec // the user's own file
		if err != nil {
			return nil, fmt.Errorf("opening %s: %w", path, errors.Unwrap(err))
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return text, nil
}
