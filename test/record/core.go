package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// corePackages are the directories of what the proof suites are about: the log, the
// state machine, the sequencer, sessions and workers, with all packages below them.
var corePackages = []string{
	"coordinator/leader", "coordinator/logstore", "coordinator/membership",
	"coordinator/raftnode", "coordinator/sequencer", "coordinator/session",
	"coordinator/transport", "fsm", "worker",
}

// coreModules are the libraries that the core stands on.
var coreModules = []string{"github.com/hashicorp/raft", "go.etcd.io/bbolt"}

// CoreDigest returns a digest of the core packages in the module at root, and of the
// versions of the libraries below them. It depends on the code alone: not on comments,
// except for compiler directives, nor on layout, tests, and the names of files.
func CoreDigest(root string) (string, error) {
	sum := sha256.New()
	for _, dir := range corePackages {
		files, err := fileDigests(filepath.Join(root, filepath.FromSlash(dir)))
		if err != nil {
			return "", err
		}
		for _, pkg := range slices.Sorted(maps.Keys(files)) {
			slices.Sort(files[pkg])
			_, _ = fmt.Fprintf(sum, "%s/%s\n%s\n", dir, pkg, strings.Join(files[pkg], "\n"))
		}
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod")) //nolint:gosec // the module's own file
	if err != nil {
		return "", fmt.Errorf("reading the libraries: %w", err)
	}
	for line := range strings.Lines(string(mod)) {
		for _, name := range coreModules {
			fields := strings.Fields(strings.TrimPrefix(line, "require"))
			if len(fields) >= 2 && strings.HasPrefix(fields[0], name) {
				_, _ = fmt.Fprintln(sum, fields[0], fields[1])
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:6]), nil
}

// Root returns the directory of the module that contains the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("looking for the module: no go.mod in any parent directory")
		}
		dir = parent
	}
}

// fileDigests returns the digests of the product's source files below a directory, by
// their package's path in it.
func fileDigests(dir string) (map[string][]string, error) {
	files := map[string][]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "testdata":
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path) //nolint:gosec // the module's own files
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(dir, filepath.Dir(path))
		files[filepath.ToSlash(pkg)] = append(files[filepath.ToSlash(pkg)], codeDigest(text))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the core packages: %w", err)
	}
	return files, nil
}

// codeDigest returns a digest of a source file's tokens. A semicolon or comma before a
// closing brace or parenthesis depends on the layout, and is left out.
func codeDigest(text []byte) string {
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile("", -1, len(text)), text, nil, scanner.ScanComments)
	var b bytes.Buffer
	separator := ""
	for {
		_, tok, literal := s.Scan()
		switch {
		case tok == token.EOF:
			sum := sha256.Sum256(b.Bytes())
			return hex.EncodeToString(sum[:])
		case tok == token.SEMICOLON || tok == token.COMMA: // a newline may stand for a semicolon
			separator = tok.String() + "\n"
			continue
		case tok == token.COMMENT && !strings.HasPrefix(literal, "//go:"):
			continue
		}
		if tok != token.RBRACE && tok != token.RPAREN {
			b.WriteString(separator)
		}
		separator = ""
		_, _ = fmt.Fprintf(&b, "%s %s\n", tok, literal)
	}
}
