package chaos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// markVariable is in the environment of all commands of a run, and of what they
// start.
const markVariable = "COMMANDS_MARK"

// commandScript is what each command runs. First it records its begin, then it
// complains about everything that an earlier command can have left, then it leaves
// something itself. Each line is one write to a file opened for appending, so that
// lines of concurrent commands don't mix.
const commandScript = `echo "begin $DTASK_EXECUTION_ID $DTASK_TASK_ID" >>"$COMMANDS_RECORD"
complain() { echo "$DTASK_EXECUTION_ID: $*" >>"$COMMANDS_COMPLAINTS"; }
mask=$(umask) core=$(ulimit -c) files=$(ulimit -n)
[ "$mask" = 0022 ] || complain "umask $mask"
[ "$core" = 0 ] || complain "core files of size $core"
[ -z "${LEAK+set}" ] || complain "variable LEAK=$LEAK"
for fd in /proc/$$/fd/*; do
	case ${fd##*/} in [012]) ;; *) [ -L "$fd" ] && complain "descriptor ${fd##*/} is $(readlink "$fd")" ;; esac
done
for file in * .[!.]* ..?*; do
	[ -e "$file" ] && complain "$file in the working directory"
done
for file in "$DTASK_CHECKPOINT_DIR"/*; do # a retried command finds its own
	[ -e "$file" ] || continue
	[ "$DTASK_ATTEMPT" != 1 ] && [ "${file##*/}" = "$DTASK_ARRAY_INDEX" ] || complain "$file in the checkpoint directory"
done
for list in /proc/$PPID/task/*/children; do
	children=; [ -e "$list" ] && read -r children <"$list"
	for pid in $children; do
		[ "$pid" = $$ ] || complain "process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
	done
done
case $((DTASK_ARRAY_INDEX % 12)) in
1) umask 0; : >file ;;
2) ulimit -n 64; ulimit -S -s 1024 ;;
3) export LEAK=1 HOME=/nowhere; cd / ;;
4) exec 7>file 8</etc/passwd ;;
5) mkdir sub; : >sub/file; : >.hidden; : >"$DTASK_CHECKPOINT_DIR/$DTASK_ARRAY_INDEX" ;;
6) (sleep 1000 &) ;;
7) setsid sh -c 'trap "" TERM HUP; sleep 1000; sleep 1000' & ;;
8) sh -c 'kill -STOP $$; sleep 1000' & ;;
9) [ "$DTASK_ATTEMPT" = 1 ] && exit 75 ;;
10) [ "$DTASK_ATTEMPT" = 1 ] && kill -KILL $$ ;;
11) sleep 0.02 ;;
esac
echo "end $DTASK_EXECUTION_ID $files" >>"$COMMANDS_RECORD"
`

// jobFile returns a job of commands, of which so many run at the same time (0 = no
// limit). Lost supervisors count as retries, so there are more than enough.
func (r *commandsRun) jobFile(parallel int) string {
	array := map[string]any{"range": fmt.Sprintf("0-%d", commandsOfJob-1)}
	if parallel > 0 {
		array["max_parallel"] = parallel
	}
	env := map[string]string{markVariable: r.mark, "COMMANDS_RECORD": r.record, "COMMANDS_COMPLAINTS": r.complaints}
	return cluster.JobFileWith(map[string]any{"name": "commands", "env": env}, cluster.TaskFile{
		"id": "c", "run": strings.ReplaceAll(commandScript, "${{", "$${{"), "array": array,
		"shell": []string{"/bin/sh", "-c"}, // a failed test is no failure
		"retry": map[string]any{"max": 1000, "initial": "10ms", "multiplier": 1, "max_delay": "100ms"},
	})
}

// An execution is what one execution of a command recorded.
type execution struct {
	begins int
	ended  bool
	task   string // as its command saw it
}

// judgeRecord compares what the commands recorded with what dtaskctl reported.
func (r *commandsRun) judgeRecord(t *testing.T) {
	t.Helper()
	complaints, err := os.ReadFile(r.complaints)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("commands complained: %v\n%.4000s", err, complaints)
	}
	executions, err := readExecutions(r.record)
	clustertest.Must(t, err)
	for id, x := range executions {
		if x.begins != 1 {
			t.Errorf("execution %s of %s has begun %d times", id, x.task, x.begins)
		}
	}
	retried := 0
	for _, job := range r.jobs {
		seen := make(map[string]bool)
		for _, task := range job.Tasks {
			if seen[task.ID] || !task.Completed() {
				t.Errorf("task %s of job %s is %s; listed before: %v", task.ID, job.ID, task.State, seen[task.ID])
			}
			seen[task.ID] = true
			retried += task.Attempt - 1
			index := strings.TrimSuffix(strings.TrimPrefix(task.ID, "c["), "]")
			x := executions[fmt.Sprintf("%s-%s-%d", job.ID, index, task.Attempt)]
			if x == nil || !x.ended || x.task != task.ID {
				t.Errorf("attempt %d of %s of job %s completed, and its command recorded %+v", task.Attempt, task.ID, job.ID, x)
			}
		}
	}
	t.Logf("%d executions have begun; %d attempts beyond the first of each task", len(executions), retried)
}

// readExecutions reads the record. All commands must have had the same limit of
// descriptors.
func readExecutions(path string) (map[string]*execution, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading what the commands recorded: %w", err)
	}
	executions, files := make(map[string]*execution), ""
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || !strings.HasSuffix(line, "\n") {
			return nil, fmt.Errorf("a command recorded %q", line)
		}
		x := executions[fields[1]]
		if x == nil {
			x = &execution{}
			executions[fields[1]] = x
		}
		if fields[0] == "begin" {
			x.begins, x.task = x.begins+1, fields[2]
			continue
		}
		if _, err := strconv.Atoi(fields[2]); err != nil || files != "" && files != fields[2] {
			return nil, fmt.Errorf("execution %s may open %q files, others %q", fields[1], fields[2], files)
		}
		x.ended, files = true, fields[2]
	}
	return executions, nil
}
