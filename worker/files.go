package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dtask/dtask/internal/taskbody"
	"github.com/dtask/dtask/worker/process"
)

// errStopped is returned after the attempt was stopped; the outcome reports the
// attempt's own cause instead.
var errStopped = errors.New("attempt stopped")

// localPath returns the absolute path of an input or output of a task. A
// relative path starts at the worker's own working directory.
func localPath(raw string) (string, error) {
	path := raw
	if scheme := taskbody.Scheme(raw); scheme != "" {
		if scheme != taskbody.FileScheme {
			return "", fmt.Errorf("invalid path %q: only files are supported", raw)
		}
		u, err := url.Parse(raw)
		if err != nil || (u.Host != "" && u.Host != "localhost") || u.Path == "" {
			return "", fmt.Errorf("invalid file URL %q: must be a local path, such as file:///tmp/data", raw)
		}
		path = u.Path
	}
	if path == "" || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("invalid path %q", raw)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("resolving %s: %w", raw, err)
	}
	return abs, nil
}

// absolutePath is localPath for a path that must not be relative: that depends on how
// the worker was started.
func absolutePath(raw string) (string, error) {
	if !strings.HasPrefix(raw, "/") && taskbody.Scheme(raw) == "" {
		return "", fmt.Errorf("path %q is relative: write an absolute one", raw)
	}
	return localPath(raw)
}

// localPaths is localPath for several paths.
func localPaths(raw []string) ([]string, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	paths := make([]string, len(raw))
	for i, r := range raw {
		var err error
		if paths[i], err = localPath(r); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// output is where an attempt writes its output, and where it is published.
type output struct {
	user   *process.User // with whose permissions; nil: the worker's
	final  string
	temp   string      // beside final, named after the attempt
	before os.FileInfo // of final at the start of the attempt; nil if it did not exist
}

// published describes a published output for the outcome.
type published struct {
	size   int64
	sha256 []byte
}

// prepareOutput creates the directory of an output, with the permissions of a user. It
// returns nil if the task declares none.
func prepareOutput(raw string, r ref, user *process.User) (*output, error) {
	if raw == "" {
		return nil, nil //nolint:nilnil // most tasks have no output
	}
	final, err := absolutePath(raw)
	if err != nil {
		return nil, &notStartedError{err: err, fatal: true}
	}
	o := &output{user: user, final: final, temp: final + "." + r.String() + ".tmp"}
	if err := user.Do(o.prepare); err != nil {
		return nil, fmt.Errorf("preparing output: %w", err)
	}
	return o, nil
}

func (o *output) prepare() error {
	err := os.MkdirAll(filepath.Dir(o.final), 0o755) //nolint:gosec // like those that a command makes
	if err == nil {
		err = os.RemoveAll(o.temp)
	}
	if info, err := os.Stat(o.final); err == nil {
		o.before = info
	}
	return err //nolint:wrapcheck // wrapped by the caller
}

// publish makes the output visible under its final name, complete and synced.
// It calls commit once, just before; if commit returns false, nothing is
// published.
func (o *output) publish(ctx context.Context, commit func() bool) (done published, err error) {
	err = o.user.Do(func() error {
		done, err = o.publishAs(ctx, commit)
		return err
	})
	return done, err
}

// publishAs is publish with the permissions of the thread.
func (o *output) publishAs(ctx context.Context, commit func() bool) (published, error) {
	path, own := o.temp, true
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if path, own = o.final, false; !o.writtenDirectly() {
			return published{}, fmt.Errorf("missing output %s: write $DTASK_OUTPUT (%s) or the file itself", o.final, o.temp)
		}
	}
	done, err := digestAndSync(ctx, path)
	if err != nil {
		return published{}, err
	}
	if !commit() {
		return published{}, errStopped
	}
	if own {
		if err := os.Rename(o.temp, o.final); err != nil {
			return published{}, fmt.Errorf("publishing output: %w", err)
		}
	}
	return done, syncDir(filepath.Dir(o.final))
}

// writtenDirectly reports whether the final file was created or changed since
// the start of the attempt, by a command that knows its path.
func (o *output) writtenDirectly() bool {
	now, err := os.Stat(o.final)
	if err != nil {
		return false
	}
	return o.before == nil || !os.SameFile(o.before, now) || now.Size() != o.before.Size() || !now.ModTime().Equal(o.before.ModTime())
}

// discard removes what was not published.
func (o *output) discard() {
	_ = o.user.Do(func() error { return os.RemoveAll(o.temp) }) // a leftover is harmless: its name is the attempt's own
}

// digestAndSync syncs a file to the disk, and returns its size and digest.
func digestAndSync(ctx context.Context, path string) (done published, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) //nolint:gosec // a path of the job file, on purpose; a pipe must not block
	if err != nil {
		return published{}, fmt.Errorf("reading output: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	if info, err := file.Stat(); err == nil && !info.Mode().IsRegular() {
		return published{}, fmt.Errorf("output %s is not a regular file", path)
	}
	hash := sha256.New()
	if done.size, err = io.Copy(hash, contextReader{ctx, file}); err == nil {
		err = file.Sync()
	}
	if err != nil {
		return published{}, fmt.Errorf("syncing output: %w", err)
	}
	done.sha256 = hash.Sum(nil)
	return done, nil
}

// contextReader is a reader that returns an error when its context is done.
type contextReader struct {
	ctx context.Context //nolint:containedctx // lives for one io.Copy
	r   io.Reader
}

// Read reads unless the context is done.
func (r contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, errStopped
	}
	return r.r.Read(p) //nolint:wrapcheck // io.EOF must stay itself
}

func syncDir(path string) error {
	dir, err := os.Open(path) //nolint:gosec // the directory of an output
	if err == nil {
		err = dir.Sync()
		_ = dir.Close() // read only
	}
	if err != nil {
		return fmt.Errorf("syncing directory of output: %w", err)
	}
	return nil
}
