package spec

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Rules about how a command is executed: its shell, working directory, standard input
// and umask.

const maxUmask = 0o777

// absoluteProblem checks a path on a worker, which has no directory that a relative one
// could start at. A path that begins with an expression can be checked by the worker
// only.
func absoluteProblem(s string) problem {
	if p := pathProblem(s); p.bad() {
		return p
	}
	if strings.HasPrefix(s, "/") || strings.HasPrefix(s, "${{") {
		return problem{}
	}
	return problem{
		fmt.Sprintf("%s is relative, and workers have no directory for it", quote(s)),
		fmt.Sprintf("write an absolute path, such as %s", quote(path.Join("/data", s))),
	}
}

// fileProblem checks a file on a worker: an absolute path or a URL.
func fileProblem(s string) problem {
	if strings.Contains(s, "://") {
		return pathProblem(s)
	}
	return absoluteProblem(s)
}

// shellProblem checks the program and options that execute a shell text.
func shellProblem(args []string) problem {
	if len(args) > maxShellArgs {
		return problem{fmt.Sprintf("has %d arguments", len(args)), fmt.Sprintf("at most %d", maxShellArgs)}
	}
	return commandProblem(args)
}

func umaskProblem(mask uint32) problem {
	if mask > maxUmask {
		return problem{fmt.Sprintf("%o is out of range", mask), "send at most 0777"}
	}
	return problem{}
}

// umask reads a file mode creation mask: three or four octal digits, quoted or not.
func (r *reader) umask(n *yaml.Node) (*uint32, bool) {
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		mask, err := strconv.ParseUint(strings.TrimPrefix(n.Value, "0o"), 8, 32)
		if err == nil && mask <= maxUmask && len(n.Value) >= 3 {
			m := uint32(mask)
			return &m, true
		}
	}
	r.fault(n, fmt.Sprintf("invalid umask %s", quote(n.Value)), "write three octal digits, such as 022 or 077")
	return nil, false
}

// onlyCommands reports fields for commands in tasks of handlers, and those for shell texts
// in tasks with argument lists.
func (r *reader) onlyCommands(t *taskParts, es []entry) {
	if len(t.runs) != 1 {
		return // reported elsewhere
	}
	kind := t.runs[0].key
	for _, e := range es {
		switch e.key {
		case "shell":
			if kind != "run" {
				r.fault(e.at, "shell is set, but there is no shell text", "leave it out, or write run instead of "+kind)
			}
		case "cwd", "stdin", "umask":
			if kind == "type" {
				r.fault(e.at, e.key+" is set, but a handler executes this task", "leave it out, or write command or run")
			}
		}
	}
}

// emptyOutput finds DTASK_OUTPUT where a shell needs its value. ${DTASK_OUTPUT:-…} and its
// like are for commands that work without one.
var emptyOutput = regexp.MustCompile(`\$(?:DTASK_OUTPUT\b|\{DTASK_OUTPUT\})`)

// needsOutput reports commands that write to $DTASK_OUTPUT in a task without output, where
// it is not set: the shell would fail with "cannot create : Directory nonexistent".
func (r *reader) needsOutput(t *taskParts, es []entry) {
	if has(es, "output") {
		return
	}
	for _, e := range t.runs {
		text := t.body.GetRun()
		if e.key == "command" {
			text = strings.Join(t.body.GetCommand(), "\n")
		}
		if e.key == "type" || !emptyOutput.MatchString(text) || strings.Contains(text, "DTASK_OUTPUT=") {
			continue
		}
		r.enter(e.key)
		r.fault(e.value, "uses $DTASK_OUTPUT, which is not set, because the task has no output",
			"write output: with an absolute path, such as /data/result.txt, or ${DTASK_OUTPUT:-} if the command works without it")
		r.leave()
	}
}
