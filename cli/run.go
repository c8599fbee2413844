package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/array"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// runTask is the ID of the task, or the array, of `run`.
const runTask = "run"

// runFlags are the flags of `run`.
type runFlags struct {
	array, cwd, name, priority, queue string
	env, labels, resources            pairs
	uses                              []string
	preemptible                       bool
	timeout                           time.Duration // of an attempt; 0 = the coordinators' default
	retries                           uint32
	namespace                         string
	needs                             needFlags
	wait                              bool
}

const runHelp = `Submit a job of one task, which executes a command on a worker, without a job file. The
command is executed with its arguments as they are, without a shell. With --array,
${{ index }} in the command, --env and --cwd is replaced by the index of each task.

A command that fails is not repeated, unless --retries allows it. A command whose worker
is lost is repeated on another one.

` + needsHelp + `

With --wait, the output of the command is copied while it runs: standard output to
standard output, standard error to standard error. Lines of an array start with the ID
of their task. A worker keeps about the first and the last MiB of a long output; what is omitted
before it was copied is replaced by a line "[dtask: N bytes omitted]". With -o json or
yaml, both streams go to standard error, and standard output is the finished job. The
exit code is

  that of the command, or of the failed task of the array with the lowest index;
  0 if the job was skipped (see --needs);
  128 + N if signal N ended that command, such as 137 for SIGKILL;
  125 if dtaskctl failed: usage, no coordinator, the job was rejected or cancelled, the
      task timed out, was lost or could not be started, --timeout passed, or the command
      succeeded, but its output could not be read;
  130 after Ctrl-C. The job continues.

Without --wait, the exit codes are those of submit.`

func newRun(a *app) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [FLAG]... -- COMMAND [ARGUMENT]...",
		Short: "Run a command as a job",
		Long:  runHelp,
		Example: `  dtaskctl run -- make -C /srv/app test
  dtaskctl run --array 0-99 --resource cpu=2 -- render --frame '${{ index }}'
  dtaskctl run --wait --cwd /srv/app --env CI=1 -- sh -c 'make 2>&1 | tail -n 20'
  dtaskctl run --needs @last -- ./publish.sh
  dtaskctl run --needs 42=failed -- ./alert.sh 'job 42 failed'
  dtaskctl run --wait --task-timeout 10m --retries 2 -- ./deploy.sh || echo "exit code $?"`,
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			a.ownFailuresAs(f.wait)
			return f.args(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := f.job(args, a.specOptions())
			if err != nil {
				return usage(err)
			}
			inNamespace(f.namespace, job)
			setQueue(f.queue, job)
			return a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
				if err := a.addNeeds(ctx, c, f.needs, job); err != nil {
					return view{}, err
				}
				run := func() (view, error) { return a.submit(ctx, c, job, submitFlags{}) }
				if f.wait {
					run = func() (view, error) { return a.runAndWait(ctx, c, job) }
				}
				v, err := run()
				nameFlags(err, f.queue, f.uses)
				return v, err
			})(cmd, args)
		},
	}
	// The rest of a line is the command's, also if the user forgot the dashes before it.
	cmd.Flags().SetInterspersed(false)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// The flags after the faulty one were not parsed.
		a.ownFailuresAs(f.wait || slices.Contains(beforeDashes(a.args), "--wait"))
		return flagError(cmd, err)
	})
	f.bind(a, cmd)
	return cmd
}

func (f *runFlags) bind(a *app, cmd *cobra.Command) {
	fl := cmd.Flags()
	bind(fl, &f.array, "array", "", "one task for each index of this `RANGE`: 0-99, 0-100:5 or 1,5,9-12", notEmpty)
	bind(fl, &f.cwd, "cwd", "", "absolute path of the working `DIRECTORY` on the worker (default: an empty one)", notEmpty)
	fl.Var(&f.env, "env", "environment variable `NAME=VALUE` of the command; repeatable")
	fl.Var(&f.labels, "label", "label `KEY=VALUE` of the job, for dtaskctl list; repeatable")
	fl.Var(&f.resources, "resource", "`NAME=AMOUNT` that the command needs: cpu=2, memory=4GiB, or a name of your workers; repeatable")
	fl.StringArrayVar(&f.uses, "uses", nil, "`LIMIT` that the command counts towards, such as db or tenant/acme; repeatable (see dtaskctl limit)")
	fl.BoolVar(&f.preemptible, "preemptible", false, "let an urgent task of the queue take the place of the command, which runs again later")
	bind(fl, &f.name, "name", "", "`NAME` of the job (default: the base name of the command)", notEmpty)
	bind(fl, &f.priority, "priority", "", "`PRIORITY`: low, normal, high or urgent, or 0 to 3", func(text string) (string, error) {
		_, err := parsePriority(text)
		return text, err
	})
	bind(fl, &f.timeout, "task-timeout", "", "maximum `DURATION` of an attempt, such as 10m (default: that of the coordinators)", duration(time.Millisecond, spec.MaxDuration))
	bind(fl, &f.retries, "retries", "0", "`N` retries after a failure (a lost worker does not count)", integer[uint32](0, spec.MaxRetries))
	bindNamespace(fl, &f.namespace, namespaceUsage)
	bindQueue(fl, &f.queue, "`QUEUE` in which the tasks wait (default: default)")
	f.needs.bind(fl)
	fl.BoolVar(&f.wait, "wait", false, "copy the output until the job finishes, and exit as the command does")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print the job ID only; with --wait, the output of the command only")
}

// args requires a command after two dashes. Without them, a flag of the command could
// be one of dtaskctl.
func (f *runFlags) args(cmd *cobra.Command, args []string) error {
	at := cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0:
		return errors.New("missing command: write it after --, as in dtaskctl run -- echo hello")
	case at != 0:
		return fmt.Errorf("unexpected argument %q before --: write the flags first, then -- and the command, as in dtaskctl run --wait -- echo hello", args[0])
	case args[0] == "":
		return errors.New("empty command: write the program after --, as in dtaskctl run -- echo hello")
	}
	if f.array != "" {
		return nil
	}
	for where, text := range f.texts(args) {
		if usesExpression(text) {
			return fmt.Errorf("%s has an expression, but --array is missing: add --array RANGE, or write $${{ for the text ${{", where)
		}
	}
	return nil
}

// texts yields the texts in which an array may have expressions, and what they are.
func (f *runFlags) texts(command []string) iter.Seq2[string, string] {
	return func(yield func(where, text string) bool) {
		for i, text := range command {
			if !yield(argumentName(i), text) {
				return
			}
		}
		for _, name := range slices.Sorted(maps.Keys(f.env.values)) {
			if !yield("--env "+name, f.env.values[name]) {
				return
			}
		}
		yield("--cwd", f.cwd)
	}
}

// usesExpression reports whether a text has an expression of an array, or an attempt at one.
func usesExpression(text string) bool {
	return array.Opens(text) && (array.UsesItem(text) || array.Check(text) != nil)
}

// job makes the job.
func (f *runFlags) job(command []string, opts spec.Options) (*dtaskv1.JobSpec, error) {
	name := f.name
	if name == "" {
		name = commandName(command[0])
	}
	return inlineJob{
		command: command, name: name, priority: f.priority, array: f.array, cwd: f.cwd,
		env: f.env.values, labels: f.labels.values, resources: f.resources.values, uses: f.uses,
		preemptible: f.preemptible, timeout: f.timeout, retries: &f.retries,
	}.build(opts)
}

// commandName returns the base name of a program as a valid name of a job.
func commandName(program string) string {
	name := strings.Map(func(c rune) rune {
		if strings.ContainsRune("-_.", c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
			return c
		}
		return '-'
	}, path.Base(program))
	name = name[:min(len(name), spec.MaxNameLength)]
	if strings.Trim(name, "-.") == "" {
		return runTask
	}
	return name
}

// beforeDashes returns the arguments before the first --.
func beforeDashes(args []string) []string {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i]
	}
	return args
}

// notEmpty parses any text but the empty one.
func notEmpty(text string) (string, error) {
	if text == "" {
		return "", errors.New("must not be empty")
	}
	return text, nil
}

// pairs is a repeatable flag NAME=VALUE. Unlike those of pflag, it leaves commas in
// values alone.
type pairs struct{ values map[string]string }

// Set implements pflag.Value.
func (p *pairs) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	_, known := p.values[name]
	switch {
	case !ok || name == "":
		return errors.New("must be NAME=VALUE")
	case known:
		return fmt.Errorf("duplicate %q", name)
	case len(p.values) == 0:
		p.values = make(map[string]string)
	}
	p.values[name] = value
	return nil
}

// String implements pflag.Value: the flag has no default.
func (p *pairs) String() string { return "" }

// Type implements pflag.Value.
func (p *pairs) Type() string { return "value" }
