package main

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is where a text stands.
type kind uint8

const (
	comment kind = 1 << iota // of Go, protocol, Make, shell and YAML files
	literal                  // a Go string
	prose                    // Markdown
)

// A text is a run of prose. Lines that belong together are joined with a space, so
// that a phrase is found across a line break.
type text struct {
	kind  kind
	test  bool // of a test file
	long  bool // a line of prose above maxColumns, without its words
	s     string
	marks []mark
}

// maxColumns is how long a line of Markdown prose may be. Tables, code and lines
// with a link may be longer.
const maxColumns = 100

// A mark maps an offset of a text to a line of its file.
type mark struct{ offset, line int }

func (t *text) add(line int, s string) {
	if t.s != "" {
		t.s += " "
	}
	t.marks = append(t.marks, mark{len(t.s), line})
	t.s += s
}

// lineAt returns the line of the file in which an offset lies.
func (t *text) lineAt(offset int) int {
	line := 0
	for _, m := range t.marks {
		if m.offset > offset {
			break
		}
		line = m.line
	}
	return line
}

// read returns the texts of a file; none if its kind is not checked.
func read(path string) ([]text, error) {
	name := filepath.Base(path)
	switch ext := filepath.Ext(path); {
	case ext == ".go":
		return readGo(path)
	case ext == ".md":
		return readMarkdown(path)
	case ext == ".proto":
		return readLines(path, "//")
	case ext == ".yaml", ext == ".yml", ext == ".sh", name == "Makefile":
		return readLines(path, "#")
	}
	return nil, nil
}

func readGo(path string) ([]text, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var (
		texts []text
		sc    scanner.Scanner
		files = token.NewFileSet()
		file  = files.AddFile(path, files.Base(), len(src))
		test  = strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/")
		last  = -2 // line of the last comment line of the open block
	)
	sc.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, tok, lit := sc.Scan()
		line := file.Line(pos)
		if tok == token.EOF {
			return texts, nil
		}
		if tok == token.COMMENT {
			if !strings.HasPrefix(lit, "//") || strings.HasPrefix(lit, "//go:") || strings.HasPrefix(lit, "//nolint") {
				continue
			}
			s := strings.TrimSpace(strings.TrimPrefix(lit, "//"))
			if line != last+1 || s == "" {
				texts = append(texts, text{kind: comment, test: test})
			}
			last = line
			texts[len(texts)-1].add(line, s)
		}
		if tok == token.STRING {
			if s, err := strconv.Unquote(lit); err == nil {
				t := text{kind: literal, test: test}
				for i, l := range strings.Split(s, "\n") {
					t.add(line+i, l)
				}
				texts = append(texts, t)
			}
		}
	}
}

// code is inline code of Markdown: it is not prose.
var code = regexp.MustCompile("`[^`]*`")

func readMarkdown(path string) ([]text, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var texts []text
	open, fenced := false, false
	for i, line := range strings.Split(string(src), "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			fenced, open = !fenced, false
			continue
		}
		if fenced || line == "" {
			open = false
			continue
		}
		if !open || strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#") {
			texts = append(texts, text{kind: prose})
			open = true
		}
		texts[len(texts)-1].add(i+1, code.ReplaceAllString(line, "``"))
		if !strings.HasPrefix(line, "|") && !strings.Contains(line, "](") && utf8.RuneCountInString(line) > maxColumns {
			texts = append(texts, text{kind: prose, long: true, marks: []mark{{0, i + 1}}})
			open = false
		}
	}
	return texts, nil
}

// readLines reads the comments of a file in which they run to the end of the line.
func readLines(path, sign string) ([]text, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var texts []text
	last := -2
	for i, line := range strings.Split(string(src), "\n") {
		_, s, ok := strings.Cut(line, sign)
		if !ok || strings.HasPrefix(line, "#!") {
			continue
		}
		if i != last+1 {
			texts = append(texts, text{kind: comment})
		}
		last = i
		texts[len(texts)-1].add(i+1, strings.TrimSpace(strings.TrimLeft(s, "#/")))
	}
	return texts, nil
}
