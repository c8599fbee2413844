package alerts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// A runbook is the commands under the heading of an alert in docs/operations.md.
type runbook struct {
	see []string // change nothing, and show the fault
	do  []string // repair it, as far as commands can
}

// readRunbook reads the commands of an alert.
func readRunbook(t *testing.T, alert string) (r runbook) {
	t.Helper()
	_, section, found := strings.Cut(read(t, filepath.Join(root(t), runbooks)), "\n### "+alert+"\n")
	if !found {
		t.Fatalf("%s has no section %s", runbooks, alert)
	}
	section, _, _ = strings.Cut(section, "\n#")
	list, inBlock := &r.see, false
	for line := range strings.Lines(section) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "```"):
			inBlock = !inBlock
		case strings.HasPrefix(line, "- Do: "):
			list = &r.do
		case inBlock:
			*list = append(*list, line)
		}
	}
	return r
}

// shows has what the commands of each runbook print in its fault.
var shows = map[string][]string{
	"DtaskNoLeader":             {"unreachable"},
	"DtaskLeaderUnstable":       {"election"},
	"DtaskReplicaDown":          {"unreachable"},
	"DtaskReplicaBehind":        {"n3"},
	"DtaskReplicasDiffer":       {"replicas disagree without a majority", "divergence"},
	"DtaskReplicaStaysOut":      {"halted", "history-conflict"},
	"DtaskDirectoryUnverified":  {"unverified-directory", "unreachable"},
	"DtaskClockSkew":            {"clock-skew"},
	"DtaskDiskNearlyFull":       {"disk-nearly-full"},
	"DtaskCertificate":          {"certificate"},
	"DtaskAuditFailing":         {"audit-log", "audit log not written"},
	"DtaskBackupOld":            {"no such file or directory", "backup failed"},
	"DtaskQueueGrowing":         {"more-0", "w2"},
	"DtaskBacklogOld":           {"long"},
	"DtaskTasksStuck":           {"nowhere", "w1"},
	"DtaskAttemptsOrphaned":     {"w2"},
	"DtaskDeadLettersGrowing":   {"1/a"},
	"DtaskTicksMissed":          {"missed ticks before it skipped"},
	"DtaskNotificationsFailing": {"notification dropped"},
	"DtaskWorkerDown":           {"down"},
	"DtaskOutputDropped":        {"output of attempts not stored"},
}

// repaired has what is true after the commands that repair a fault.
var repaired = map[string]func(ctx context.Context, b *bed) error{
	"DtaskCertificate": func(ctx context.Context, b *bed) error {
		if a := b.Run(ctx, "cluster", "status"); a.Err() != nil || strings.Contains(a.Stdout, "certificate") {
			return errors.New(a.String())
		}
		return nil
	},
	// A backup was written to another directory.
	"DtaskBackupOld": func(ctx context.Context, b *bed) error {
		if a := b.Run(ctx, "backup", "status"); a.Err() != nil || strings.Contains(a.Stdout, "failed ") || !strings.Contains(a.Stdout, " in file://"+b.Dir+"\n") {
			return fmt.Errorf("%w: %s", cluster.ErrNotYet, a)
		}
		return nil
	},
	"DtaskQueueGrowing": hasPriority("low"),
	"DtaskBacklogOld":   hasPriority("urgent"),
	"DtaskTasksStuck": func(ctx context.Context, b *bed) error {
		return hasState(ctx, b, "cancelled")
	},
	// What the receiver missed is read.
	"DtaskNotificationsFailing": func(ctx context.Context, b *bed) error { return hasState(ctx, b, "failed") },
	"DtaskTicksMissed": func(ctx context.Context, b *bed) error {
		if a := b.Run(ctx, "schedule", "show", frequent); a.Err() != nil || !strings.Contains(a.Stdout, "started by a user") {
			return errors.New(a.String())
		}
		return nil
	},
	// The task that had failed for good after two attempts ran again.
	"DtaskDeadLettersGrowing": func(ctx context.Context, b *bed) error {
		job, err := b.Job(ctx, "1")
		if err == nil && (len(job.Tasks) != 1 || job.Tasks[0].Attempt <= 2) {
			err = fmt.Errorf("no further attempt: %w: %+v", cluster.ErrNotYet, job)
		}
		return err
	},
}

func hasState(ctx context.Context, b *bed, state string) error {
	job, err := b.Job(ctx, "1")
	if err == nil && job.State != state {
		err = fmt.Errorf("job 1 is %s, want %s", job.State, state)
	}
	return err
}

func hasPriority(priority string) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error {
		a := b.Run(ctx, "list", "--limit", "0")
		for line := range strings.Lines(a.Stdout) {
			if words := strings.Fields(line); words[0] == "1" && slices.Contains(words, priority) {
				return nil
			}
		}
		return fmt.Errorf("job 1 does not have priority %s: %s", priority, a)
	}
}

func TestEveryRunbookHasCommands(t *testing.T) {
	t.Parallel()
	alerts := alertNames(t)
	if listed := slices.Sorted(maps.Keys(shows)); !slices.Equal(listed, alerts) {
		t.Errorf("the runbooks of %v are tested,\nthe alerts are %v", listed, alerts)
	}
	for _, alert := range alerts {
		r := readRunbook(t, alert)
		if len(r.see) == 0 {
			t.Errorf("the runbook of %s has no command that shows the fault", alert)
		}
		if _, tested := repaired[alert]; tested != (len(r.do) > 0) {
			t.Errorf("the runbook of %s has %d commands that repair; what they repair is tested: %v", alert, len(r.do), tested)
		}
	}
}

// The commands of each runbook run as written, in a cluster with the fault of the alert:
// they show the fault, and those that repair it do so.
func TestTheRunbookOfEachAlertRunsInItsFault(t *testing.T) {
	t.Parallel()
	if os.Getenv(runbookVariable) == "" {
		t.Skip("make runbooks runs this")
	}
	all := faults()
	for _, alert := range alertNames(t) {
		at := slices.IndexFunc(all, func(f fault) bool { return slices.Contains(f.fires, alert) })
		t.Run(alert, func(t *testing.T) {
			t.Parallel()
			r, f := readRunbook(t, alert), all[at]
			b := startBed(t, &f)
			f.inject(t, b)
			m := newMachine(t, b)
			clustertest.Must(t, cluster.Until(t.Context(), "the runbook shows the fault", fireLimit, func(ctx context.Context) error {
				return m.shows(ctx, r.see, shows[alert])
			}))
			for _, command := range r.do {
				out, err := m.run(t.Context(), command)
				clustertest.Must(t, err)
				t.Logf("$ %s\n%s", command, out)
			}
			if check := repaired[alert]; check != nil {
				clustertest.Must(t, cluster.Until(t.Context(), "the fault is repaired", startLimit, func(ctx context.Context) error {
					return check(ctx, b)
				}))
			}
		})
	}
}

// A machine runs commands of operators, as on a machine of the cluster.
type machine struct {
	dir   string // working directory
	env   []string
	names *strings.Replacer // of the page, to those of the cluster
}

// journal is journalctl for a machine without systemd: it prints what the programs of a
// unit have written.
const journal = `#!/bin/sh
while [ $# -gt 1 ] && [ "$1" != -u ]; do shift; done
case $2 in
dtaskd) exec cat '%[1]s'/n*.log ;;
dtask-worker@*) exec cat '%[1]s'/w*.log ;;
esac
echo "unknown unit $2" >&2
exit 1
`

func newMachine(t *testing.T, b *bed) *machine {
	t.Helper()
	bin := t.TempDir()
	clustertest.Must(t, os.WriteFile(filepath.Join(bin, "journalctl"), fmt.Appendf(nil, journal, b.Dir), 0o700))
	m := &machine{
		dir: b.Dir,
		env: append([]string{
			"PATH=" + bin + ":" + b.Programs.Dir + ":" + os.Getenv("PATH"), "HOME=" + bin, "DTASK_ADDR=" + strings.Join(b.Addrs, ","),
		}, b.Ctl.Env...),
		names: strings.NewReplacer(
			"/mnt/backups", b.Dir, "/var/lib/dtask-worker", b.Workers()[0].Dir, "/var/lib/dtask", b.follower.DataDir, "n2", b.follower.Name,
			"JOB", "1", "TASK", "a", "TYPE", "fail", "NAME", "more-0", "SCHEDULE", frequent,
		),
	}
	// Where the key of the CA is.
	secrets := filepath.Join(b.Dir, cluster.SecretsDir)
	if _, err := os.Stat(secrets); err == nil {
		m.dir = secrets
	}
	return m
}

// run runs a command of the page.
func (m *machine) run(ctx context.Context, command string) (out string, err error) {
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", m.names.Replace(command))
	cmd.Dir, cmd.Env = m.dir, m.env
	text, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", command, err, text)
	}
	return string(text), err
}

// shows runs commands that change nothing, and returns an error unless they print some
// texts. Those that search may find nothing, and exit with 1.
func (m *machine) shows(ctx context.Context, commands, texts []string) error {
	var all strings.Builder // what the commands print
	for _, command := range commands {
		out, err := m.run(ctx, command)
		searches := strings.Contains(command, "| grep ") || strings.HasPrefix(command, "dtaskctl audit verify ")
		if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!searches || !ok || exit.ExitCode() != 1) {
			return err
		}
		all.WriteString(out)
	}
	for _, text := range texts {
		if !strings.Contains(all.String(), text) {
			return fmt.Errorf("%q is missing: %w\n%s", text, cluster.ErrNotYet, all.String())
		}
	}
	return nil
}
