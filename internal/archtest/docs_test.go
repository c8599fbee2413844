package archtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the module's directory, relative to this package's.
const root = "../.."

func TestDecisionRecordNumbersAreUsedOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(root, "docs", "adr")
	files, err := filepath.Glob(filepath.Join(dir, "[0-9]*.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("%s has no decision record", dir)
	}
	index := read(t, filepath.Join(dir, "README.md"))
	next := 1
	for _, file := range files { // Glob sorts
		name := filepath.Base(file)
		// A number without a file is that of a deleted record, which the index still
		// lists.
		for strings.Contains(index, fmt.Sprintf("| %04d |", next)) {
			next++
		}
		if number := fmt.Sprintf("%04d", next); !strings.HasPrefix(name, number+"-") {
			t.Errorf("%s: the next number is %s; list deleted records in docs/adr/README.md", name, number)
		}
		next++
		if text := read(t, file); !strings.HasPrefix(text, "# "+name[:4]+". ") {
			t.Errorf("%s: the title must start with %q", name, "# "+name[:4]+". ")
		}
		if !strings.Contains(index, "("+name+")") {
			t.Errorf("%s is not in docs/adr/README.md", name)
		}
	}
}

// link is a Markdown link or image whose target is in this repository.
var link = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)\s]*)?\)`)

func TestLinksInDocsLeadSomewhere(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case ".git", "testdata", "bin", "build":
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		for _, m := range link.FindAllStringSubmatch(read(t, path), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// named matches what docs name of the code: tests and fuzz targets, which are not
// fields, and metrics.
var named = regexp.MustCompile(`(?:^|[^.\w])((?:Test|Fuzz)[A-Z]\w+|dtask_[a-z][a-z_]*[a-z]\b)`)

func TestDocsNameOnlyTestsAndMetricsThatExist(t *testing.T) {
	t.Parallel()
	var docs, code []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "build"):
			return fs.SkipDir
		case filepath.Ext(path) == ".md" && d.Name() != "CHANGELOG.md": // it also names what is removed
			docs = append(docs, path)
		case filepath.Ext(path) == ".go" && !strings.HasSuffix(path, ".pb.go"):
			code = append(code, read(t, path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(code, "\n")
	for _, path := range docs {
		for _, m := range named.FindAllStringSubmatch(read(t, path), -1) {
			if !exists(all, m[1]) {
				t.Errorf("%s names %s, which does not exist", path, m[1])
			}
		}
	}
}

// exists reports whether code declares a test, or has the name of a metric, which may
// be written without the prefix of the product and of a subsystem.
func exists(code, name string) bool {
	metric, ok := strings.CutPrefix(name, "dtask_")
	if !ok {
		return strings.Contains(code, "func "+name)
	}
	_, short, _ := strings.Cut(metric, "_")
	return strings.Contains(code, `"`+metric+`"`) || strings.Contains(code, `"`+short+`"`)
}
