package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

// commandLimit is a guard against hanging.
const commandLimit = 10 * time.Minute

// A commandLoad is one command, executed many times.
type commandLoad struct {
	what    string
	argv    []string
	divisor int // of -commands
	slots   int
	keep    bool // each has an output, which is kept
}

// commandLoads are what users run: nothing at all, a shell, an interpreter.
var commandLoads = []commandLoad{
	{"/bin/true", []string{"/bin/true"}, 1, 2, false},
	{"sh -c 'echo x', output kept", []string{"sh", "-c", "echo x"}, 1, 2, true},
	{"python3 -c pass", []string{"python3", "-c", "pass"}, 25, 2, false},
	{"/bin/true on 8 slots", []string{"/bin/true"}, 1, 8, false},
}

// A commandRun is the cost of one run of a load.
type commandRun struct {
	perSecond float64
	cpu       time.Duration // of all processes, for each command; 0 = unknown
}

// A runner executes a load.
type runner struct {
	name string
	run  func(ctx context.Context, l commandLoad, count int) (commandRun, error)
}

// runners returns dtask and the tools that users have beside it: xargs, and what else is
// installed.
func (b *bench) runners(ctx context.Context) []runner {
	list := []runner{{"dtask", dtaskCommands}}
	for _, r := range []runner{{"xargs", xargsCommands}, {"parallel", parallelCommands}} {
		if _, err := exec.LookPath(r.name); err == nil {
			list = append(list, r)
		}
	}
	if exec.CommandContext(ctx, b.python, "-c", "import hyperqueue").Run() == nil {
		list = append(list, runner{"hyperqueue", b.hyperqueueCommands})
	}
	return list
}

// commands measures the execution of real commands, beside other tools. All of them
// execute the same commands in turn.
func commands(ctx context.Context, b *bench) error {
	runners := b.runners(ctx)
	for _, l := range commandLoads {
		if _, err := exec.LookPath(l.argv[0]); err != nil {
			continue
		}
		count := max(b.commands/l.divisor, l.slots)
		all := make([][]commandRun, len(runners))
		for range max(1, b.rounds/2) {
			for i, r := range runners {
				limited, cancel := context.WithTimeout(ctx, commandLimit)
				result, err := r.run(limited, l, count)
				cancel()
				if err != nil {
					return fmt.Errorf("%s with %s: %w", l.what, r.name, err)
				}
				all[i] = append(all[i], result)
			}
		}
		b.commandRows(l, count, runners, all)
	}
	return nil
}

// commandRows adds the figures of a load to the table, compared with those of xargs.
func (b *bench) commandRows(l commandLoad, count int, runners []runner, all [][]commandRun) {
	xargs := "xargs: " + l.what
	for i, r := range runners {
		setting := fmt.Sprintf("%d commands, %d at once", count, l.slots)
		against := xargs
		switch r.name {
		case "dtask":
			setting += "; 3 coordinators, one worker, sync on, logs kept"
		case "xargs":
			against = ""
		}
		b.table.compare(r.name+": "+l.what, "commands/s", setting, against, values(all[i], func(r commandRun) float64 { return r.perSecond })...)
		if all[i][0].cpu > 0 {
			b.table.add("  CPU", "ms/command", "all processes, the command's included", values(all[i], func(r commandRun) float64 {
				return float64(r.cpu.Microseconds()) / 1000
			})...)
		}
	}
}

// dtaskCommands executes a load as one array of commands, from its submission with
// dtaskctl to its end.
func dtaskCommands(ctx context.Context, l commandLoad, count int) (r commandRun, err error) {
	err = with(ctx, cluster.Config{Workers: 1, Slots: l.slots}, func(c *cluster.Cluster) error {
		if _, err := c.AwaitLeader(ctx); err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		path := filepath.Join(c.Dir, "commands.yaml")
		if err := os.WriteFile(path, []byte(commandJob(l, count)), 0o600); err != nil {
			return fmt.Errorf("writing job file: %w", err)
		}
		before := cpuWithChildren(c)
		began := time.Now()
		answer := c.Run(ctx, "--timeout", commandLimit.String(), "submit", path, "--wait", "-q")
		if err := answer.Err(); err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		took := time.Since(began)
		r.perSecond = float64(count) / took.Seconds()
		if after := cpuWithChildren(c); before > 0 && after > 0 {
			r.cpu = (after - before + answer.CPU) / time.Duration(count)
		}
		return nil
	})
	return r, err
}

// commandJob returns the job file of a load.
func commandJob(l commandLoad, count int) string {
	var argv []string
	for _, a := range l.argv {
		argv = append(argv, strconv.Quote(a))
	}
	return fmt.Sprintf("job:\n  name: commands\n  tasks:\n    - {id: all, command: [%s], array: {range: 0-%d}}\n", strings.Join(argv, ", "), count-1)
}

// cpuWithChildren returns the CPU time of a cluster's processes, of the supervisors, and of
// all commands that they have executed so far; 0 if it is unknown.
func cpuWithChildren(c *cluster.Cluster) (total time.Duration) {
	var processes []*cluster.Process
	for _, n := range c.Coordinators() {
		processes = append(processes, n.Process)
	}
	for _, w := range c.Workers() {
		processes = append(processes, w.Process)
	}
	for _, p := range processes {
		tree, err := treeCPU(p.Pid())
		if err != nil {
			return 0
		}
		total += tree
	}
	return total
}

// xargsCommands executes a load with xargs. A command whose output is kept writes it to
// a file of its own.
func xargsCommands(ctx context.Context, l commandLoad, count int) (commandRun, error) {
	args := append([]string{"-P", strconv.Itoa(l.slots), "-n", "1"}, l.argv...)
	if l.keep {
		// The shell's argument, which xargs adds, is the name of the file.
		last := len(args) - 1
		args[last] = "{ " + args[last] + `; } >"$0"`
	}
	return external(ctx, count, "xargs", args...)
}

// parallelCommands executes a load with GNU parallel, which keeps outputs by itself.
func parallelCommands(ctx context.Context, l commandLoad, count int) (commandRun, error) {
	args := []string{"--will-cite", "-j", strconv.Itoa(l.slots), "-n", "1"}
	if l.keep {
		args = append(args, "--results", "results")
	}
	quoted := make([]string, len(l.argv))
	for i, a := range l.argv {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return external(ctx, count, "parallel", append(args, strings.Join(quoted, " ")+" #{}")...)
}

//go:embed hyperqueue.py
var hyperqueueScript string

// hyperqueueCommands executes a load with HyperQueue, which keeps outputs by itself.
func (b *bench) hyperqueueCommands(ctx context.Context, l commandLoad, count int) (commandRun, error) {
	args := append([]string{"-c", hyperqueueScript, strconv.Itoa(l.slots), strconv.Itoa(count)}, l.argv...)
	return external(ctx, count, b.python, args...)
}

// external runs a program in an empty directory with the numbers up to count on its
// standard input. If it prints the seconds that count, as JSON, these are its time,
// otherwise the time from its start to its end.
func external(ctx context.Context, count int, program string, args ...string) (r commandRun, err error) {
	dir, err := os.MkdirTemp("", "dtask-bench-")
	if err != nil {
		return r, fmt.Errorf("creating directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var numbers strings.Builder
	for i := range count {
		fmt.Fprintln(&numbers, i)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdin, cmd.Env = dir, strings.NewReader(numbers.String()), append(os.Environ(), "HOME="+dir)
	began := time.Now()
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("running %s: %w\n%.500s", program, err, out)
	}
	printed := struct{ Seconds float64 }{time.Since(began).Seconds()}
	_ = json.Unmarshal(out, &printed) // most programs print something else
	r.perSecond = float64(count) / printed.Seconds
	// The times are those of the program and of all processes that it waited for.
	r.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()) / time.Duration(count)
	return r, nil
}
