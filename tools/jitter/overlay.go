package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed sleep/sleep.go
var sleepSource []byte

// sleepDir is where a module gets package sleep, by the overlay only.
const sleepDir = "internal/jittersleep"

// pkg is what `go list` reports of a package: the files of this build.
type pkg struct {
	Dir          string
	ImportPath   string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Module       *struct{ Path, Dir string }
}

// site is a line with a statement that can sleep.
type site struct {
	file string // relative to the directory of the module
	line int
}

func (s site) String() string { return s.file + ":" + strconv.Itoa(s.line) }

// testBinary is the test binary of a package, with sleeps.
type testBinary struct {
	path  string
	pkg   pkg
	sites []site // Their indexes are the numbers that the plan refers to.

	sources map[string]string // what replaces a file, by the path of the file
}

// prepare writes the files of o.pkg, with its tests, and those of the packages of o.with
// into the directory tmp, with a call before each statement.
func prepare(ctx context.Context, o options, tmp string) (*testBinary, error) {
	b := &testBinary{path: filepath.Join(tmp, "jitter.test"), sources: map[string]string{}}
	listed, err := list(ctx, o.dir, "-pkg", o.pkg)
	if err != nil {
		return nil, err
	}
	if len(listed) != 1 {
		return nil, fmt.Errorf("invalid -pkg %q: matches %d packages; name one", o.pkg, len(listed))
	}
	b.pkg = listed[0]
	if b.pkg.Module == nil {
		return nil, fmt.Errorf("invalid -pkg %q: not in a module; name a package of this one", o.pkg)
	}
	if len(b.pkg.TestGoFiles)+len(b.pkg.XTestGoFiles) == 0 {
		return nil, fmt.Errorf("invalid -pkg %q: no test files in %s; name a package with tests, and this one with -with", o.pkg, b.pkg.Dir)
	}
	if err := b.instrument(b.pkg, slices.Concat(b.pkg.GoFiles, b.pkg.TestGoFiles, b.pkg.XTestGoFiles), tmp); err != nil {
		return nil, err
	}
	for pattern := range strings.FieldsSeq(o.with) {
		others, err := list(ctx, o.dir, "-with", pattern)
		if err != nil {
			return nil, err
		}
		for _, p := range others {
			if err := b.instrument(p, p.GoFiles, tmp); err != nil {
				return nil, err
			}
		}
	}
	if len(b.sites) == 0 {
		return nil, fmt.Errorf("%s has no statement that can sleep: name other packages with -with", o.pkg)
	}
	return b, nil
}

// instrument writes the given files of a package with calls into tmp, and adds them to the
// sources of the overlay and their lines to the sites.
func (b *testBinary) instrument(p pkg, files []string, tmp string) error {
	if p.Module == nil || p.Module.Path != b.pkg.Module.Path {
		return fmt.Errorf("invalid -with: %s is not in module %s, and only its packages can sleep", p.ImportPath, b.pkg.Module.Path)
	}
	for _, name := range files {
		path := filepath.Join(p.Dir, name)
		if b.sources[path] != "" || strings.HasSuffix(name, "bench_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading %s: %w", p.ImportPath, err)
		}
		text, lines, err := sitesOf(path, src, b.pkg.Module.Path+"/"+sleepDir, len(b.sites))
		if err != nil {
			return fmt.Errorf("adding sleeps to %s: %w", p.ImportPath, err)
		}
		if text == nil {
			continue
		}
		rel, err := filepath.Rel(p.Module.Dir, path)
		if err != nil {
			return fmt.Errorf("naming the sites of %s: %w", path, err)
		}
		for _, line := range lines {
			b.sites = append(b.sites, site{filepath.ToSlash(rel), line})
		}
		b.sources[path] = filepath.Join(tmp, strconv.Itoa(len(b.sources))+".go")
		if err := os.WriteFile(b.sources[path], text, 0o600); err != nil {
			return fmt.Errorf("writing %s with sleeps: %w", path, err)
		}
	}
	return nil
}

// compile writes the overlay and builds the test binary with it.
func (b *testBinary) compile(ctx context.Context, o options, tmp string) error {
	sleep := filepath.Join(tmp, "sleep.go")
	b.sources[filepath.Join(b.pkg.Module.Dir, sleepDir, "sleep.go")] = sleep
	text, err := json.Marshal(map[string]any{"Replace": b.sources})
	if err != nil {
		return fmt.Errorf("encoding the overlay: %w", err)
	}
	overlay := filepath.Join(tmp, "overlay.json")
	if err := errors.Join(os.WriteFile(sleep, sleepSource, 0o600), os.WriteFile(overlay, text, 0o600)); err != nil {
		return fmt.Errorf("writing the overlay: %w", err)
	}
	cmd := command(ctx, o.dir, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", b.path, o.pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		for path, copied := range b.sources { // The compiler names the copies, by the shorter path.
			name := regexp.MustCompile(`[^\s:]*` + regexp.QuoteMeta(filepath.Join(filepath.Base(tmp), filepath.Base(copied))))
			out = name.ReplaceAllLiteral(out, []byte(path))
		}
		return fmt.Errorf("building the tests of %s with sleeps: %w: mend what go vet %s reports, or tools/jitter if it reports nothing:\n%s", o.pkg, cause(ctx, err), o.pkg, out)
	}
	return nil
}

// list returns the packages that match a pattern of the go command.
func list(ctx context.Context, dir, flag, pattern string) ([]pkg, error) {
	cmd := command(ctx, dir, "go", "list", "-json=Dir,ImportPath,GoFiles,TestGoFiles,XTestGoFiles,Module", pattern)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("invalid %s %q: go list: %w: name packages as for go test:\n%s", flag, pattern, cause(ctx, err), stderr.Bytes())
	}
	var packages []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("decoding the output of go list: %w", err)
		}
		packages = append(packages, p)
	}
}
