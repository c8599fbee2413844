package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
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

// awaitBackupAlarm waits until the alarm of failed backups with a message is raised, or is not.
func awaitBackupAlarm(t *testing.T, c *cluster.Cluster, what, message string, raised bool) {
	t.Helper()
	clustertest.Must(t, cluster.Until(t.Context(), what, guard, func(ctx context.Context) error {
		status, err := c.Status(ctx)
		is := slices.ContainsFunc(status.Alarms, func(a cluster.Alarm) bool {
			return a.Kind == "backup" && strings.Contains(a.Message, message)
		})
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
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{})
	gone := filepath.Join(c.Dir, "gone")
	schedule := func(dir string) {
		t.Helper()
		clustertest.Must(t, c.Run(ctx, "backup", "schedule", "--every", "1h", "--to", "file://"+dir).Err())
	}
	awaitAlarm := func(what string, raised bool) {
		t.Helper()
		awaitBackupAlarm(t, c, what, gone+": no such file or directory", raised)
	}
	schedule(gone)
	awaitBackups(t, c, "the failure is shown", func(s *backupStatus) bool {
		return s.Last == nil && s.Failed != nil && strings.HasSuffix(s.Failed.Error, gone+": no such file or directory")
	})
	awaitAlarm("an alarm is raised", true)
	there := filepath.Join(c.Dir, "there")
	clustertest.Must(t, os.Mkdir(there, 0o700))
	schedule(there)
	awaitBackups(t, c, "a backup is written", func(s *backupStatus) bool { return s.isWritten() && s.Failed == nil })
	awaitAlarm("the alarm ends", false)
}

// A backup that can't be copied elsewhere is one that failed, as docs/operations.md says.
func TestAScheduledBackupIsHandedToTheCommandOfItsCoordinator(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, copies := filepath.Join(dir, "hook"), filepath.Join(dir, "copies")
	clustertest.Must(t, os.WriteFile(script, []byte("#!/bin/sh\n[ -d "+copies+" ] || { echo the store is down >&2; exit 3; }\n"+
		`cp "$(dirname "$1")"/*.dtbk `+copies+"\n"), 0o700))
	c := clustertest.Start(t, cluster.Config{CoordinatorFlags: []string{"--backup-command", script}})
	set := filepath.Join(c.Dir, "backups")
	clustertest.Must(t, os.Mkdir(set, 0o700))
	schedule := func() {
		t.Helper()
		clustertest.Must(t, c.Run(t.Context(), "backup", "schedule", "--every", "1h", "--to", "file://"+set).Err())
	}
	const why = "was written, but --backup-command failed: exit status 3: the store is down"
	schedule()
	awaitBackups(t, c, "the failure is shown", func(s *backupStatus) bool {
		return s.Last == nil && s.Failed != nil && strings.HasSuffix(s.Failed.Error, why)
	})
	awaitBackupAlarm(t, c, "an alarm is raised", why, true)
	clustertest.Must(t, os.Mkdir(copies, 0o700))
	schedule() // due at once
	awaitBackups(t, c, "a backup is handed over", func(s *backupStatus) bool { return s.isWritten() && s.Failed == nil })
	awaitBackupAlarm(t, c, "the alarm ends", why, false)
	if out := runs(t, c, "backup", "verify", copies); !strings.Contains(out, "is complete") {
		t.Errorf("verify prints %s", out)
	}
}
