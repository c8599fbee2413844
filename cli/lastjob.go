package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dtask/dtask/client"
)

// A lastJob is the file with the ID of the last job that this user submitted from this
// machine to one cluster. Its content is not trusted: whatever is not a job ID counts as
// no submission. Without a directory, nothing is kept.
type lastJob struct {
	dir     string // empty = none
	cluster string // names the file
}

// lastJob returns the file of a client's cluster.
func (a *app) lastJob(c *client.Client) lastJob {
	return lastJob{dir: stateDir(a.getenv), cluster: clusterName(c.Cluster(), a.seeds())}
}

// stateDir returns the directory of the state of dtaskctl; empty if the user has none.
func stateDir(getenv func(string) string) string {
	if dir := getenv("DTASK_STATE_DIR"); dir != "" {
		return dir
	}
	// The XDG specification ignores relative paths.
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "dtask")
	}
	home := homeDir(getenv)
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".local", "state", "dtask")
}

// homeDir returns the user's home directory; empty if the user has none. Containers set
// HOME to / or to a directory that doesn't exist for such a user. Creating one would be
// wrong, and a warning at each submission noise.
func homeDir(getenv func(string) string) string {
	home := getenv("HOME")
	if info, err := os.Stat(home); err != nil || !info.IsDir() || !filepath.IsAbs(home) || filepath.Clean(home) == "/" {
		return ""
	}
	return home
}

// clusterName names a cluster in the name of a file: by its ID or, if its coordinators
// announce none, by their addresses in any order.
func clusterName(id string, seeds []string) string {
	if id != "" {
		return id // client.Cluster returns hexadecimal digits only
	}
	if len(seeds) == 0 {
		seeds = []string{client.DefaultAddr}
	}
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(slices.Sorted(slices.Values(seeds))), ",")))
	return "addr-" + hex.EncodeToString(sum[:16])
}

func (l lastJob) path() string { return filepath.Join(l.dir, "last-job-"+l.cluster) }

// remember stores the ID of a submitted job. A failure doesn't fail the submission.
func (a *app) remember(c *client.Client, id string) {
	l := a.lastJob(c)
	if l.dir == "" {
		return
	}
	if err := l.write(id); err != nil {
		a.report(fmt.Sprintf("warning: @last does not name job %s: %v", id, err), nil,
			"DTASK_STATE_DIR sets the directory of the file")
	}
}

// write replaces the file atomically: concurrent submissions leave the ID of one of
// them. The file isn't synced, since a file that a crash emptied counts as no submission.
func (l lastJob) write(id string) error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return fmt.Errorf("creating the state directory: %w", err)
	}
	err := replaceFile(l.path(), id+"\n")
	if err != nil {
		// Otherwise @last would name an earlier job, and cancel @last would cancel that one.
		_ = os.Remove(l.path())
		return fmt.Errorf("writing the state file: %w", err)
	}
	return nil
}

// replaceFile writes a file of mode 0600 beside path and renames it to path.
func replaceFile(path, content string) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // has mode 0600
	if err != nil {
		return err //nolint:wrapcheck // the caller adds the context
	}
	_, err = file.WriteString(content)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// maxLastJob bounds what is read: an ID has at most 20 digits.
const maxLastJob = 64

// errNoLastJob is returned by read if there was no submission.
var errNoLastJob = errors.New("you have submitted no job from this machine to this cluster")

// read returns the ID in the file. The error is errNoLastJob, or why the file is not used.
func (l lastJob) read() (string, error) {
	if l.dir == "" {
		return "", errors.New("missing home directory")
	}
	file, err := openWithoutWaiting(l.path())
	if errors.Is(err, fs.ErrNotExist) {
		return "", errNoLastJob
	} else if err != nil {
		return "", err //nolint:wrapcheck // names operation and file
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	switch {
	case err != nil:
		return "", err //nolint:wrapcheck // names operation and file
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", l.path())
	case !isOwn(info):
		return "", fmt.Errorf("%s belongs to another user", l.path())
	}
	text, err := io.ReadAll(io.LimitReader(file, maxLastJob))
	if err != nil {
		return "", err //nolint:wrapcheck // names operation and file
	}
	id, err := parseJobID(string(bytes.TrimSpace(text)))
	if err != nil {
		return "", fmt.Errorf("%s has no job ID", l.path())
	}
	return id, nil
}

// lastSubmission resolves @last.
func (a *app) lastSubmission(ctx context.Context, c *client.Client) (jobRef, error) {
	if c.Cluster() == "" {
		// Every response has the ID of the cluster. A leader always knows it.
		if _, err := collect(c.Jobs(ctx, client.JobFilter{Limit: 1, Stale: a.stale})); err != nil {
			return jobRef{}, err
		}
	}
	id, err := a.lastJob(c).read()
	switch {
	case errors.Is(err, errNoLastJob):
		return jobRef{}, withHint(notFound("%v", err), "submit one, or name a job by its ID or @NAME: dtaskctl list shows both")
	case err != nil:
		return jobRef{}, withHint(notFound("@last is unknown: %v", err), "submit a job, or name one by its ID or @NAME: dtaskctl list shows both; DTASK_STATE_DIR sets the directory of the file")
	}
	return jobRef{job: id}, nil
}
