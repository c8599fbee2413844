package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A page is a Markdown document with files and commands: docs/tutorial.md. A fenced block
// whose info string is a language and a name is a file. A block of the language console
// has commands, each on a line that begins with "$ ", and below it what the command prints.
type page struct {
	parts []any // string (a line as it is), pageFile or *pageCommand, in the order of the page
}

type pageFile struct {
	name, content string
	introduced    bool // the paragraph above the block has the name in backticks
}

type pageCommand struct {
	text   string
	output []string // lines
}

// readPage splits a document into its parts.
func readPage(text string) page {
	var r pageReader
	for line := range strings.Lines(text) {
		r.read(strings.TrimSuffix(line, "\n"))
	}
	return r.page
}

// A pageReader reads a page line by line.
type pageReader struct {
	page
	paragraph string // the last one
	ended     bool   // the paragraph is complete

	inBlock, inConsole bool
	file               *pageFile    // that the block has; nil: none
	command            *pageCommand // the last one of the block; nil: none
}

func (r *pageReader) read(line string) {
	info, fence := strings.CutPrefix(line, "```")
	command, prompt := strings.CutPrefix(line, "$ ")
	switch {
	case fence && r.inBlock:
		r.endBlock()
	case fence:
		r.startBlock(info)
	case r.file != nil:
		r.file.content += line + "\n"
	case r.inConsole && prompt:
		r.command = &pageCommand{text: command}
		r.parts = append(r.parts, r.command)
		return
	case r.command != nil:
		r.command.output = append(r.command.output, line)
		return
	case line == "":
		r.ended = true
	case r.ended:
		r.paragraph, r.ended = line, false
	default:
		r.paragraph += "\n" + line
	}
	r.parts = append(r.parts, line)
}

func (r *pageReader) startBlock(info string) {
	language, name, named := strings.Cut(info, " ")
	if named {
		r.file = &pageFile{name: name, introduced: strings.Contains(r.paragraph, "`"+name+"`")}
	}
	r.inBlock, r.inConsole = true, language == "console"
}

func (r *pageReader) endBlock() {
	if r.file != nil {
		r.parts = append(r.parts, *r.file)
	}
	r.paragraph, r.inBlock, r.inConsole, r.file, r.command = "", false, false, nil, nil
}

// String returns the document.
func (p page) String() string {
	var b strings.Builder
	for _, part := range p.parts {
		switch part := part.(type) {
		case string:
			b.WriteString(part + "\n")
		case *pageCommand:
			b.WriteString("$ " + part.text + "\n")
			for _, line := range part.output {
				b.WriteString(line + "\n")
			}
		}
	}
	return b.String()
}

// ellipsis stands for any text within a line, or, on a line of its own, for any lines.
const ellipsis = "…"

var (
	pointInTime = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`)
	// An age is a duration or what dtaskctl prints for one below a second.
	age = regexp.MustCompile(`(\b(\d+(\.\d+)?(ms|s|m|h|d))+( ago)?\b)|\bnow\b`)
	// A progressLine is erased on a terminal.
	progressLine = regexp.MustCompile(`^job \d+: [\d,]+/[\d,]+( |$)`)
)

// normalized replaces what varies from run to run in a line.
func normalized(line string) string {
	line = pointInTime.ReplaceAllString(line, "<time>")
	line = age.ReplaceAllString(line, "<age>")
	return strings.Join(strings.Fields(line), " ")
}

// sameLine reports whether a line of the page stands for a line that was printed.
func sameLine(want, got string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(normalized(want)), ellipsis, ".*")
	return regexp.MustCompile("^" + pattern + "$").MatchString(normalized(got))
}

// sameOutput reports whether lines of the page stand for lines that were printed.
func sameOutput(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0] == ellipsis {
		return sameOutput(want[1:], got) || len(got) > 0 && sameOutput(want, got[1:])
	}
	return len(got) > 0 && sameLine(want[0], got[0]) && sameOutput(want[1:], got[1:])
}

// rewritten returns printed lines for the page. Lines of the page that stand for one of
// them remain as they are.
func rewritten(old, got []string) []string {
	lines := slices.Clone(got)
	for i, line := range lines {
		same := func(o string) bool { return o != ellipsis && sameLine(o, line) }
		if at := slices.IndexFunc(old, same); at >= 0 {
			lines[i], old = old[at], old[at+1:]
		}
	}
	return lines
}

func TestAPageIsReadAndWrittenAsItIs(t *testing.T) {
	t.Parallel()
	const text = "# Page\n\nThe file `a.sh`\nhas a line.\n\n```sh a.sh\necho b\n\n$ c\n```\n\n```text b\nx\n```\n\n" +
		"```sh\n$ not run\n```\n\n```console\n$ sh a.sh\nb\n$ true\n```\nEnd.\n"
	p := readPage(text)
	if got := p.String(); got != text {
		t.Errorf("got\n%s\nwant\n%s", got, text)
	}
	var files []pageFile
	var commands []string
	for _, part := range p.parts {
		switch part := part.(type) {
		case pageFile:
			files = append(files, part)
		case *pageCommand:
			commands = append(commands, part.text+": "+strings.Join(part.output, "|"))
		}
	}
	if want := []pageFile{{"a.sh", "echo b\n\n$ c\n", true}, {"b", "x\n", false}}; !slices.Equal(files, want) {
		t.Errorf("got the files %+v, want %+v", files, want)
	}
	if want := []string{"sh a.sh: b", "true: "}; !slices.Equal(commands, want) {
		t.Errorf("got the commands %q, want %q", commands, want)
	}
}

func TestOutputIsComparedExceptForWhatVaries(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		want, got string
		same      bool
	}{
		"equal":                   {"a b", "a b", true},
		"another word":            {"a b", "a c", false},
		"a missing line":          {"a\nb", "a", false},
		"one line more":           {"a", "a\nb", false},
		"durations":               {"took 16ms", "took  1m3.5s", true},
		"ages":                    {"now", "12s ago", true},
		"a duration and a number": {"took 16ms", "took 16", false},
		"a number":                {"job 1", "job 2", false},
		"times":                   {"at 2026-05-01 12:00:00Z", "at 2027-11-30 23:59:59Z", true},
		"any text":                {"8  …/1000 low", "8 17/1000 low", true},
		"any lines":               {"a\n…\nz", "a\nb\nc\nz", true},
		"no line":                 {"a\n…\nz", "a\nz", true},
		"the end after any lines": {"a\n…\nz", "a\nb", false},
		"an ellipsis":             {"… and 16 more", "… and 16 more", true},
	} {
		if got := sameOutput(strings.Split(test.want, "\n"), strings.Split(test.got, "\n")); got != test.same {
			t.Errorf("%s: got %v, want %v", name, got, test.same)
		}
	}
	got := rewritten([]string{"took 1s", "a …", "…", "b"}, []string{"new", "took 2s", "a 17", "c"})
	if want := []string{"new", "took 1s", "a …", "c"}; !slices.Equal(got, want) {
		t.Errorf("rewritten: got %q, want %q", got, want)
	}
}
