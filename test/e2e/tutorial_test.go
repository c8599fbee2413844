package e2e

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

var rewriteTutorial = flag.Bool("rewrite", false, "write the output of the commands into docs/tutorial.md instead of comparing with it")

// maxColumns is the width of a terminal on which the tutorial reads well.
const maxColumns = 100

// What the tutorial has in the place of what a test has of its own.
const (
	tutorialDir     = "/tmp/tutorial"
	tutorialAddress = "127.0.0.1:7460"
	tutorialUser    = "ada"
	tutorialStart   = "dtaskd --dev"
	tutorialCode    = `echo "exit code $?"`
)

// A tutorialSession does what the tutorial shows, in a directory of its own.
type tutorialSession struct {
	dir, state string
	programs   cluster.Programs
	listen     string // of dtaskd --dev
	code       int    // of the last command
}

// TestTheTutorialIsWhatTheProgramsPrint runs docs/tutorial.md, whose last section has the
// rules of the comparison.
func TestTheTutorialIsWhatTheProgramsPrint(t *testing.T) {
	t.Parallel()
	root, err := cluster.Root()
	clustertest.Must(t, err)
	path := filepath.Join(root, "docs", "tutorial.md")
	text, err := os.ReadFile(path) //nolint:gosec // a file of the module
	clustertest.Must(t, err)
	checkWidth(t, "the page", strings.Split(string(text), "\n")...)
	tutorial := readPage(string(text))
	s := &tutorialSession{dir: t.TempDir(), state: t.TempDir()}
	for _, part := range tutorial.parts {
		switch part := part.(type) {
		case pageFile:
			s.write(t, part)
		case *pageCommand:
			s.follow(t, part)
		}
	}
	if s.code != 0 {
		t.Errorf("the last command ended with exit code %d", s.code)
	}
	if *rewriteTutorial {
		clustertest.Must(t, os.WriteFile(path, []byte(tutorial.String()), 0o644)) //nolint:gosec // a document
	}
}

func checkWidth(t *testing.T, where string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if width := utf8.RuneCountInString(line); width > maxColumns {
			t.Errorf("%s has a line of %d columns, more than %d:\n%s", where, width, maxColumns, line)
		}
	}
}

// own replaces the directory of the tutorial by that of the session.
func (s *tutorialSession) own(text string) string {
	return strings.ReplaceAll(text, tutorialDir, s.dir)
}

// write writes a file of the tutorial.
func (s *tutorialSession) write(t *testing.T, f pageFile) {
	t.Helper()
	if !f.introduced {
		t.Errorf("the paragraph above the file %s lacks its name", f.name)
	}
	path := filepath.Join(s.dir, filepath.FromSlash(f.name))
	clustertest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))              //nolint:gosec // for the commands
	clustertest.Must(t, os.WriteFile(path, []byte(s.own(f.content)), 0o644)) //nolint:gosec // for the commands
}

// follow runs a command of the tutorial and compares its output, or replaces it.
func (s *tutorialSession) follow(t *testing.T, c *pageCommand) {
	t.Helper()
	if s.code != 0 && c.text != tutorialCode {
		t.Errorf("a command ended with exit code %d, but the next one is %s; want %s", s.code, c.text, tutorialCode)
	}
	var got []string
	if c.text == tutorialStart {
		got = s.start(t)
	} else {
		got = s.run(t, c.text)
		checkWidth(t, "the output of "+c.text, got...)
	}
	if sameOutput(c.output, got) {
		return
	}
	if *rewriteTutorial {
		c.output = rewritten(c.output, got)
		return
	}
	t.Errorf("$ %s\nprinted\n%s\nbut the page has\n%s\n-rewrite writes the output into the page",
		c.text, strings.Join(got, "\n"), strings.Join(c.output, "\n"))
}

// start starts dtaskd --dev, and returns what it prints until it is ready.
func (s *tutorialSession) start(t *testing.T) []string {
	t.Helper()
	dev, ctl := startDev(t)
	s.programs, s.listen = ctl.Programs, ctl.Addrs[0]
	return s.lines(printed(t, dev, "Press Ctrl-C to stop."))
}

// run runs a command in a shell, and returns what it prints on a terminal.
func (s *tutorialSession) run(t *testing.T, command string) []string {
	t.Helper()
	if s.listen == "" {
		t.Fatalf("%s comes before %s", command, tutorialStart)
	}
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	// $? is that of the command before, as in one shell.
	shell := exec.CommandContext(ctx, "/bin/sh", "-c", "(exit $CODE)\n"+s.own(command)) //nolint:gosec // of a document of the module
	shell.Dir = s.dir
	shell.Env = []string{
		"PATH=" + s.programs.Dir + string(filepath.ListSeparator) + os.Getenv("PATH"), "HOME=/", "USER=" + tutorialUser,
		"DTASK_ADDR=" + s.listen, "DTASK_STATE_DIR=" + s.state, "CODE=" + strconv.Itoa(s.code),
	}
	shell.WaitDelay = time.Second
	out, err := shell.CombinedOutput()
	s.code = 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		s.code = exit.ExitCode()
	} else if err != nil {
		t.Fatalf("$ %s\n%v\n%s", command, err, out)
	}
	return s.lines(string(out))
}

// lines splits output into lines, with the directory and the address of the tutorial and
// without progress.
func (s *tutorialSession) lines(out string) []string {
	out = strings.NewReplacer(s.dir, tutorialDir, s.listen, tutorialAddress).Replace(out)
	var lines []string
	for line := range strings.Lines(out) {
		if line = strings.TrimSuffix(line, "\n"); !progressLine.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}
