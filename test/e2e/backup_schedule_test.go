package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/programfile"
)

// backupStatus is what `backup status` prints.
type backupStatus struct {
	Schedule *struct {
		SetAt time.Time `json:"set_at"`
	} `json:"schedule"`
	Last, Failed *struct {
		ServerID string    `json:"server_id"`
		EndedAt  time.Time `json:"ended_at"`
		File     string    `json:"file"`
		Index    uint64    `json:"index"`
		Error    string    `json:"error"`
	}
}

// isWritten reports whether the present schedule has a backup.
func (s *backupStatus) isWritten() bool {
	return s.Schedule != nil && s.Last != nil && !s.Last.EndedAt.Before(s.Schedule.SetAt)
}

// awaitBackups waits for a status of the schedule of backups.
func awaitBackups(t *testing.T, c *cluster.Cluster, what string, cond func(s *backupStatus) bool) (s backupStatus) {
	t.Helper()
	clustertest.Must(t, cluster.Until(t.Context(), what, guard, func(ctx context.Context) error {
		a := c.Run(ctx, "backup", "status", "-o", "json")
		s = backupStatus{}
		err := a.Err()
		if err == nil {
			err = a.Into(&s)
		}
		if err == nil && !cond(&s) {
			err = fmt.Errorf("%w: %s", cluster.ErrNotYet, a)
		}
		return err
	}))
	return s
}

// Backups are scheduled as docs/operations.md says. The leader is killed when one is due: the
// next leader has it written. The directory has complete backups only.
func TestAScheduledBackupIsWrittenAfterTheLeaderWasKilled(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	b := &backedUpCluster{Cluster: c, n1: c.Coordinator("n1"), steps: runbookCommands(t, "Scheduled backups")}
	set := filepath.Join(c.Dir, "backups")
	clustertest.Must(t, os.Mkdir(set, 0o700))
	completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("before", cluster.Builtin("a", "noop", ""))))
	b.next(t, "dtaskctl backup schedule ")
	first := awaitBackups(t, c, "the first backup is written", (*backupStatus).isWritten)
	if out := b.next(t, "dtaskctl backup status"); !strings.Contains(out, "to file://"+set+", keeping the newest 48\n") || !strings.Contains(out, first.Last.File+" in file://"+set+"\n") {
		t.Errorf("status prints %s", out)
	}

	leader := clustertest.Leader(t, c)
	clustertest.Must(t, c.Run(ctx, "backup", "schedule", "--every", "2h", "--to", "file://"+set).Err()) // due at once
	clustertest.Must(t, leader.Kill())
	second := awaitBackups(t, c, "the next leader has a backup written", (*backupStatus).isWritten)
	if second.Last.Index <= first.Last.Index {
		t.Errorf("the backups have the log indexes %d and %d", first.Last.Index, second.Last.Index)
	}
	list := c.Run(ctx, "backup", "list", set)
	clustertest.Must(t, list.Err())
	if strings.Contains(list.Stdout, "INCOMPLETE") || !strings.Contains(list.Stdout, first.Last.File) || !strings.Contains(list.Stdout, second.Last.File) {
		t.Errorf("got %s", list)
	}
	if out := runs(t, c, "backup", "verify", set); !strings.Contains(out, "is complete") {
		t.Errorf("verify prints %s", out)
	}
	clustertest.Must(t, cluster.Until(ctx, "the run of the killed leader leaves nothing behind", guard, func(context.Context) error {
		entries, err := os.ReadDir(set)
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".dtbk") {
				err = fmt.Errorf("%w: %s", cluster.ErrNotYet, e.Name())
			}
		}
		return err
	}))
	if len(b.steps) > 0 {
		t.Errorf("the test runs all of the runbook but %q", b.steps)
	}
}

// A scheduledBackup is a cluster that writes backups into a directory.
type scheduledBackup struct {
	*cluster.Cluster

	t *testing.T
}

// schedule sets a schedule, of which a backup is due at once.
func (b scheduledBackup) schedule(dir string) {
	b.t.Helper()
	clustertest.Must(b.t, b.Run(b.t.Context(), "backup", "schedule", "--every", "1h", "--to", "file://"+dir).Err())
}

// awaitFailure waits until the status and an alarm say why no backup was written.
func (b scheduledBackup) awaitFailure(why string) {
	b.t.Helper()
	awaitBackups(b.t, b.Cluster, "the failure is shown", func(s *backupStatus) bool {
		return s.Last == nil && s.Failed != nil && strings.HasSuffix(s.Failed.Error, why)
	})
	b.awaitAlarm("an alarm is raised", why, true)
}

// awaitSuccess waits until a backup is written and the alarm has ended.
func (b scheduledBackup) awaitSuccess() {
	b.t.Helper()
	awaitBackups(b.t, b.Cluster, "a backup is written", func(s *backupStatus) bool { return s.isWritten() && s.Failed == nil })
	b.awaitAlarm("the alarm ends", "", false)
}

func (b scheduledBackup) awaitAlarm(what, why string, raised bool) {
	b.t.Helper()
	clustertest.Must(b.t, cluster.Until(b.t.Context(), what, guard, func(ctx context.Context) error {
		status, err := b.Status(ctx)
		is := slices.ContainsFunc(status.Alarms, func(a cluster.Alarm) bool { return a.Kind == "backup" && strings.Contains(a.Message, why) })
		if err == nil && is != raised {
			err = fmt.Errorf("%w: alarms %+v", cluster.ErrNotYet, status.Alarms)
		}
		return err
	}))
}

// The operator sees why the backups of a schedule fail, until its directory is one that can
// be written.
func TestAScheduledBackupThatFailsIsAnAlarm(t *testing.T) {
	t.Parallel()
	b := scheduledBackup{clustertest.Start(t, cluster.Config{}), t}
	gone := filepath.Join(b.Dir, "gone")
	b.schedule(gone)
	b.awaitFailure(gone + ": no such file or directory")
	there := filepath.Join(b.Dir, "there")
	clustertest.Must(t, os.Mkdir(there, 0o700))
	b.schedule(there)
	b.awaitSuccess()
}

// So do they on a disk that is full or read-only, and nothing is left there. With space, or
// mounted for writing, the next one is written.
func TestAScheduledBackupToADiskThatRefusesItIsAnAlarm(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ options, repaired, why string }{
		"full":      {"size=4k", "size=64m", "no space left on device"},
		"read-only": {"ro", "rw", "read-only file system"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if os.Geteuid() != 0 {
				t.Skip("only root can mount a disk")
			}
			ctx := t.Context()
			b := scheduledBackup{clustertest.Start(t, cluster.Config{}), t}
			disk := filepath.Join(b.Dir, "disk")
			clustertest.Must(t, os.Mkdir(disk, 0o700))
			if out, err := exec.CommandContext(ctx, "mount", "-t", "tmpfs", "-o", "mode=0700,"+c.options, "tmpfs", disk).CombinedOutput(); err != nil {
				t.Skipf("no disk can be mounted here: %v\n%s", err, out)
			}
			t.Cleanup(func() {
				if out, err := exec.Command("umount", disk).CombinedOutput(); err != nil { // the context of the test is done
					t.Errorf("%v\n%s", err, out)
				}
			})
			b.schedule(disk)
			b.awaitFailure(c.why)
			if left, err := os.ReadDir(disk); err != nil || len(left) > 0 {
				t.Errorf("the failed backup left %v, %v", left, err)
			}
			out, err := exec.CommandContext(ctx, "mount", "-o", "remount,"+c.repaired, disk).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			b.schedule(disk)
			b.awaitSuccess()
		})
	}
}

// A backup that can't be copied elsewhere is one that failed, as docs/operations.md says.
func TestAScheduledBackupIsHandedToTheCommandOfItsCoordinator(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, copies := filepath.Join(dir, "hook"), filepath.Join(dir, "copies")
	programfile.Write(t, script, "#!/bin/sh\n[ -d "+copies+" ] || { echo the store is down >&2; exit 3; }\n"+
		`cp "$(dirname "$1")"/*.dtbk `+copies+"\n", 0o700)
	b := scheduledBackup{clustertest.Start(t, cluster.Config{CoordinatorFlags: []string{"--backup-command", script}}), t}
	set := filepath.Join(b.Dir, "backups")
	clustertest.Must(t, os.Mkdir(set, 0o700))
	b.schedule(set)
	b.awaitFailure("was written, but --backup-command failed: exit status 3: the store is down")
	clustertest.Must(t, os.Mkdir(copies, 0o700))
	b.schedule(set) // due at once
	b.awaitSuccess()
	if out := runs(t, b.Cluster, "backup", "verify", copies); !strings.Contains(out, "is complete") {
		t.Errorf("verify prints %s", out)
	}
}
