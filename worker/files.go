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
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// errStopped is the error of work that was given up since the attempt was
// stopped; the attempt's own cause is what is reported.
var errStopped = errors.New("the attempt was stopped")

var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// localPath turns an input or output of a task into an absolute path. A relative
// path starts at the worker's own working directory.
func localPath(raw string) (string, error) {
	path := raw
	if found := scheme.FindString(raw); found != "" {
		if !strings.EqualFold(found, "file://") {
			return "", fmt.Errorf("%s: this worker reads and writes files only", raw)
		}
		u, err := url.Parse(raw)
		if err != nil {
			return "", fmt.Errorf("%s is not a URL: %w", raw, err)
		}
		if (u.Host != "" && u.Host != "localhost") || u.Path == "" {
			return "", fmt.Errorf("%s: a file URL names a path of this machine, as in file:///tmp/data", raw)
		}
		path = u.Path
	}
	if path == "" || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("%q is not a path", raw)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", raw, err)
	}
	return abs, nil
}

// localPaths is localPath for several.
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

// output is where an attempt writes, and where that goes when it succeeded.
type output struct {
	final  string
	temp   string      // beside final, under the attempt's own name
	before os.FileInfo // of final when the attempt began; nil if there was none
}

// published describes an output for the report.
type published struct {
	size   int64
	sha256 []byte
}

// prepareOutput makes the folder for an output. It returns nil if the task
// declares none.
func prepareOutput(raw string, r ref) (*output, error) {
	if raw == "" {
		return nil, nil //nolint:nilnil // no output is a usual thing
	}
	final, err := localPath(raw)
	if err != nil {
		return nil, &notStartedError{err: err, fatal: true}
	}
	o := &output{final: final, temp: final + "." + r.String() + ".tmp"}
	if err := os.MkdirAll(filepath.Dir(final), 0o750); err != nil {
		return nil, fmt.Errorf("making the folder of the output: %w", err)
	}
	if err := os.RemoveAll(o.temp); err != nil {
		return nil, fmt.Errorf("clearing the way for the output: %w", err)
	}
	if info, err := os.Stat(final); err == nil {
		o.before = info
	}
	return o, nil
}

// publish makes the output visible under its final name, complete and synced.
// commit is asked once, just before; if it says no, nothing is published.
func (o *output) publish(ctx context.Context, commit func() bool) (published, error) {
	path, own := o.temp, true
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if path, own = o.final, false; !o.writtenDirectly() {
			return published{}, fmt.Errorf("output %s is missing: neither $DTASK_OUTPUT (%s) nor the file itself was written", o.final, o.temp)
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
			return published{}, fmt.Errorf("publishing the output: %w", err)
		}
	}
	return done, syncDir(filepath.Dir(o.final))
}

// writtenDirectly reports whether the final file was made or changed since the
// attempt began, by a command that knows its path.
func (o *output) writtenDirectly() bool {
	now, err := os.Stat(o.final)
	if err != nil {
		return false
	}
	return o.before == nil || !os.SameFile(o.before, now) || now.Size() != o.before.Size() || !now.ModTime().Equal(o.before.ModTime())
}

// discard removes what was not published.
func (o *output) discard() {
	_ = os.RemoveAll(o.temp) // a leftover is harmless: its name is the attempt's own
}

// digestAndSync brings a file to the disk and says what is in it.
func digestAndSync(ctx context.Context, path string) (published, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) //nolint:gosec // a path of the job file, on purpose; a pipe must not hang us
	if err != nil {
		return published{}, fmt.Errorf("reading the output: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	if info, err := file.Stat(); err != nil {
		return published{}, fmt.Errorf("reading the output: %w", err)
	} else if !info.Mode().IsRegular() {
		return published{}, fmt.Errorf("output %s is no regular file", path)
	}
	hash := sha256.New()
	size, err := io.Copy(hash, contextReader{ctx, file})
	if err != nil {
		return published{}, fmt.Errorf("reading the output: %w", err)
	}
	if err := file.Sync(); err != nil {
		return published{}, fmt.Errorf("syncing the output: %w", err)
	}
	return published{size: size, sha256: hash.Sum(nil)}, nil
}

// readerUntil is a reader that ends with an error when its context is done.
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
	dir, err := os.Open(path) //nolint:gosec // the folder of an output
	if err != nil {
		return fmt.Errorf("syncing the folder of the output: %w", err)
	}
	defer func() { _ = dir.Close() }() // read only
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("syncing the folder of the output: %w", err)
	}
	return nil
}
