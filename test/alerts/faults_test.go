package alerts

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/audit"
	"github.com/dtask/dtask/test/chaos/proxy"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	faultswitches "github.com/dtask/dtask/test/faults"
)

// long is the payload of a task that outlives its test.
const long = "1h"

// faults are all faults. Each alert is in the list of one that lets it fire.
func faults() []fault {
	faulty := cluster.Config{CoordinatorProgram: cluster.FaultyCoordinator}
	return []fault{
		{
			name: "a majority dies", fires: []string{"DtaskNoLeader", "DtaskReplicaDown"},
			inject: func(t *testing.T, b *bed) {
				t.Helper()
				clustertest.Must(t, b.leader.Kill())
				clustertest.Must(t, b.follower.Kill())
			},
		},
		{name: "leadership changes again and again", fires: []string{"DtaskLeaderUnstable"}, inject: transferOften},
		{
			name: "a follower dies", fires: []string{"DtaskReplicaDown"},
			inject: killFollower,
		},
		{name: "a follower is cut off", fires: []string{"DtaskReplicaBehind"}, config: faulty, prepare: route, inject: cutOff},
		{
			name: "two replicas have flipped fields", fires: []string{"DtaskReplicasDiffer"}, config: faulty,
			may: []string{"DtaskReplicaDown"}, inject: flipTwo,
		},
		{
			name: "a majority comes back with old copies", fires: []string{"DtaskReplicaStaysOut"},
			may: []string{"DtaskReplicaDown", "DtaskNoLeader", "DtaskDirectoryUnverified"}, inject: restoreOldCopies,
		},
		{
			name: "all die and two come back", fires: []string{"DtaskDirectoryUnverified", "DtaskReplicaDown"},
			may: []string{"DtaskNoLeader"},
			inject: func(t *testing.T, b *bed) {
				t.Helper()
				for _, n := range b.Coordinators() {
					clustertest.Must(t, n.Kill())
				}
				for _, n := range b.Coordinators()[:2] {
					clustertest.Must(t, n.Start(t.Context()))
				}
			},
		},
		{
			name: "the leader's clock jumps", fires: []string{"DtaskClockSkew"}, config: faulty,
			inject: func(t *testing.T, b *bed) {
				t.Helper()
				clustertest.Must(t, b.leader.PostBody(t.Context(), "/test/clock", `{"offset_ms": 3600000}`))
			},
		},
		{
			name: "a disk is nearly full", fires: []string{"DtaskDiskNearlyFull"}, may: []string{"DtaskReplicaDown"},
			inject: func(t *testing.T, b *bed) {
				t.Helper()
				clustertest.Must(t, b.follower.Kill())
				b.follower.AddArgs("--min-free-bytes", "1000000000000000")
				clustertest.Must(t, b.follower.Start(t.Context()))
			},
		},
		{
			name: "a certificate expires soon", fires: []string{"DtaskCertificate"}, config: cluster.Config{TLS: true},
			inject: expireSoon,
		},
		{
			name: "an audit log can't be written", fires: []string{"DtaskAuditFailing"}, may: []string{"DtaskReplicaDown"},
			config: cluster.Config{TLS: true}, inject: blockAudit,
		},
		{name: "the directory of backups is gone", fires: []string{"DtaskBackupOld"}, inject: removeBackups},
		{name: "more tasks arrive than start", fires: []string{"DtaskQueueGrowing"}, may: []string{"DtaskBacklogOld"}, inject: submitMore},
		{
			name: "few tasks wait for long", fires: []string{"DtaskBacklogOld"},
			inject: func(t *testing.T, b *bed) {
				t.Helper()
				clustertest.Submit(t, b.Ctl, cluster.JobFile("long", tasks(20, "sleep", long)...))
			},
		},
		{
			name: "no worker has the label", fires: []string{"DtaskTasksStuck"},
			inject: func(t *testing.T, b *bed) {
				t.Helper()
				clustertest.Submit(t, b.Ctl, cluster.JobFile("elsewhere",
					cluster.Builtin("a", "noop", "").With("require", map[string]string{"zone": "nowhere"})))
			},
		},
		{
			// Workers are marked down after a minute, so that the attempts stay.
			name: "a worker dies and heartbeats are rare", fires: []string{"DtaskAttemptsOrphaned", "DtaskWorkerDown"},
			config: cluster.Config{CoordinatorFlags: []string{"--heartbeat-interval", "20s"}}, inject: orphan,
		},
		{
			name: "a task fails for good", fires: []string{"DtaskDeadLettersGrowing"},
			inject: failForGood,
		},
		{
			name: "no coordinator runs while a schedule is due", fires: []string{"DtaskTicksMissed", "DtaskNoLeader", "DtaskReplicaDown"},
			inject: missTicks,
		},
		{
			name: "a webhook is rejected", fires: []string{"DtaskNotificationsFailing", "DtaskDeadLettersGrowing"},
			prepare: func(t *testing.T, b *bed) {
				t.Helper()
				receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
				t.Cleanup(receiver.Close)
				for _, n := range b.Coordinators() {
					n.AddArgs("--dead-letter-webhook", receiver.URL)
				}
			},
			inject: failForGood,
		},
		{
			name: "a worker dies", fires: []string{"DtaskWorkerDown"},
			inject: killWorker,
		},
		{name: "output can't be stored", fires: []string{"DtaskOutputDropped"}, inject: dropOutput},
	}
}

// tasks returns n independent tasks.
func tasks(n int, kind, payload string) []cluster.TaskFile {
	list := make([]cluster.TaskFile, n)
	for i := range list {
		list[i] = cluster.Builtin(fmt.Sprint("t", i), kind, payload)
	}
	return list
}

func killFollower(t *testing.T, b *bed) {
	t.Helper()
	clustertest.Must(t, b.follower.Kill())
}

func killWorker(t *testing.T, b *bed) {
	t.Helper()
	clustertest.Must(t, b.Workers()[1].Kill())
}

func transferOften(t *testing.T, b *bed) {
	t.Helper()
	ctx := t.Context()
	leader := b.leader
	for range 6 {
		clustertest.Must(t, b.Run(ctx, "cluster", "transfer-leader").Err())
		next, err := b.AwaitLeaderOtherThan(ctx, leader)
		clustertest.Must(t, err)
		leader = next
	}
}

// route lets all replicas reach the last one through links that can be cut.
func route(t *testing.T, b *bed) {
	t.Helper()
	all := b.Coordinators()
	last := all[len(all)-1]
	var links []*proxy.Link
	for _, n := range all[:len(all)-1] {
		address, err := cluster.FreePort(t.Context())
		clustertest.Must(t, err)
		link, err := proxy.Open(t.Context(), address, last.Addr)
		clustertest.Must(t, err)
		t.Cleanup(func() { _ = link.Close() }) // the cluster has ended
		n.Setenv(faultswitches.AddressesVariable, last.Addr+"="+link.Addr())
		links = append(links, link)
	}
	b.cut = func(t *testing.T) {
		t.Helper()
		for _, link := range links {
			clustertest.Must(t, link.Set(proxy.Cut()))
		}
	}
}

// cutOff lets the last replica miss entries.
func cutOff(t *testing.T, b *bed) {
	t.Helper()
	ctx := t.Context()
	if last := b.Coordinators()[2]; b.leader == last {
		clustertest.Must(t, b.Run(ctx, "cluster", "transfer-leader", "n1").Err())
		_, err := b.AwaitLeaderOtherThan(ctx, last)
		clustertest.Must(t, err)
	}
	b.cut(t)
	submitJobs(t, b, 50*time.Millisecond, func(i int) string { return cluster.JobFile(fmt.Sprint("job-", i), tasks(20, "noop", "")...) })
}

// flipTwo changes a field of another task at each of two replicas. One entry makes both
// tasks ready, and from it on all three replicas differ.
func flipTwo(t *testing.T, b *bed) {
	t.Helper()
	ctx := t.Context()
	id := clustertest.Submit(t, b.Ctl, cluster.JobFile("flipped", cluster.Builtin("a", "sleep", "5s"),
		cluster.Builtin("b", "noop", "").After("a"), cluster.Builtin("c", "noop", "").After("a")))
	for i, n := range b.Followers(b.leader) {
		clustertest.Must(t, cluster.Until(ctx, n.Name+" has applied the job", startLimit, func(ctx context.Context) error {
			return n.Post(ctx, fmt.Sprintf("/test/flip?job=%s&task=%d", id, i+1))
		}))
	}
	// An idle cluster compares nothing.
	submitJobs(t, b, 500*time.Millisecond, func(i int) string { return cluster.JobFile(fmt.Sprint("job-", i), tasks(1, "noop", "")...) })
}

// restoreOldCopies replaces the data directories of two replicas by copies that lack jobs
// that the first one has, and lets the two serve before that one comes back.
func restoreOldCopies(t *testing.T, b *bed) {
	t.Helper()
	ctx := t.Context()
	all := b.Coordinators()
	kill := func() {
		for _, n := range all {
			clustertest.Must(t, n.Kill())
		}
	}
	run := func(name string) {
		id, err := b.Submit(ctx, cluster.JobFile(name, tasks(10, "noop", "")...))
		clustertest.Must(t, err)
		_, err = b.AwaitEnd(ctx, id, startLimit)
		clustertest.Must(t, err)
	}
	run("before")
	kill()
	for _, n := range all[1:] {
		clustertest.Must(t, os.CopyFS(n.DataDir+".copy", os.DirFS(n.DataDir)))
	}
	clustertest.Must(t, b.Start(ctx))
	for i := range 3 {
		run(fmt.Sprint("acknowledged-", i))
	}
	clustertest.Must(t, b.AwaitEqual(ctx))
	clustertest.Must(t, cluster.Pause(ctx, 2*time.Second)) // n1 learns that its entries are committed
	kill()
	for _, n := range all[1:] {
		clustertest.Must(t, os.RemoveAll(n.DataDir))
		clustertest.Must(t, os.Rename(n.DataDir+".copy", n.DataDir))
	}
	for _, n := range all[1:] {
		clustertest.Must(t, n.Start(ctx))
	}
	for _, n := range all[1:] {
		clustertest.Must(t, b.AwaitCoordinator(ctx, n))
	}
	_, err := b.At(all[1:]...).Submit(ctx, cluster.JobFile("other", tasks(1, "noop", "")...))
	clustertest.Must(t, err)
	clustertest.Must(t, all[0].Start(ctx))
	_, err = all[0].Wait(ctx) // it refuses the leader's entries and exits; restarted, it stays out
	clustertest.Must(t, err)
	clustertest.Must(t, all[0].Start(ctx))
}

// expireSoon gives a running follower a certificate that is valid for five days.
func expireSoon(t *testing.T, b *bed) {
	t.Helper()
	ca := filepath.Join(b.Dir, cluster.SecretsDir, "ca")
	own := filepath.Join(b.Dir, cluster.SecretsDir, b.follower.Name)
	clustertest.Must(t, b.Run(t.Context(), "tls", "issue", "--ca", ca, "--replica", b.follower.Name, "--out", own, "--days", "5").Err())
}

// blockAudit puts a file where a follower keeps its audit log.
func blockAudit(t *testing.T, b *bed) {
	t.Helper()
	clustertest.Must(t, b.follower.Kill())
	logs := filepath.Join(b.follower.DataDir, audit.Directory)
	clustertest.Must(t, os.RemoveAll(logs))
	clustertest.Must(t, os.WriteFile(logs, nil, 0o600))
	clustertest.Must(t, b.follower.Start(t.Context()))
}

// removeBackups removes the directory of the schedule of backups after the first one. The
// alert comes after two intervals, which can't be shorter than a minute each.
func removeBackups(t *testing.T, b *bed) {
	t.Helper()
	clustertest.Must(t, os.RemoveAll(scheduleBackups(t, b)))
}

// scheduleBackups sets a schedule of backups, and returns its directory after the first one.
func scheduleBackups(t *testing.T, b *bed) (dir string) {
	t.Helper()
	ctx := t.Context()
	dir = filepath.Join(b.Dir, "backups")
	clustertest.Must(t, os.Mkdir(dir, 0o700))
	clustertest.Must(t, cluster.Until(ctx, "the schedule is set", startLimit, func(ctx context.Context) error {
		return b.Run(ctx, "backup", "schedule", "--every", "1m", "--to", "file://"+dir).Err()
	}))
	clustertest.Must(t, cluster.Until(ctx, "the first backup is written", startLimit, func(ctx context.Context) error {
		a := b.Run(ctx, "backup", "status")
		if a.Err() == nil && strings.Contains(a.Stdout, "last      none") {
			return fmt.Errorf("%w: %s", cluster.ErrNotYet, a)
		}
		return a.Err()
	}))
	return dir
}

// frequent is the name of a schedule that fires every two seconds.
const frequent = "frequent"

func setSchedule(t *testing.T, b *bed) {
	t.Helper()
	text := "job: {name: " + frequent + ", tasks: [{id: a, type: noop}]}\nschedule: {every: 2s, overlap: allow}\n"
	clustertest.Must(t, b.RunWith(t.Context(), text, "schedule", "set", "-").Err())
}

// missTicks stops all coordinators for longer than the period of the rule: what they counted
// before is not in it, and what they miss is counted right after their start.
func missTicks(t *testing.T, b *bed) {
	t.Helper()
	ctx := t.Context()
	setSchedule(t, b)
	for _, n := range b.Coordinators() {
		clustertest.Must(t, n.Kill())
	}
	clustertest.Must(t, cluster.Pause(ctx, 15*time.Minute/scale+5*time.Second))
	for _, n := range b.Coordinators() {
		clustertest.Must(t, n.Start(ctx))
	}
}

func submitMore(t *testing.T, b *bed) {
	t.Helper()
	submitJobs(t, b, 500*time.Millisecond, func(i int) string { return cluster.JobFile(fmt.Sprint("more-", i), tasks(300, "sleep", long)...) })
}

// submitJobs submits jobs in the background until the test ends.
func submitJobs(t *testing.T, b *bed, pause time.Duration, job func(i int) string) {
	t.Helper()
	ctx := t.Context()
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		for i := 0; cluster.Pause(ctx, pause) == nil; i++ {
			if _, err := b.Submit(ctx, job(i)); err != nil && ctx.Err() == nil {
				t.Errorf("submitting job %d: %v", i, err)
				return
			}
		}
	}()
}

// orphan kills a worker that runs tasks.
func orphan(t *testing.T, b *bed) {
	t.Helper()
	ctx := t.Context()
	clustertest.Submit(t, b.Ctl, cluster.JobFile("long", tasks(8, "sleep", long)...))
	clustertest.Must(t, cluster.Until(ctx, "both workers run tasks", startLimit, func(ctx context.Context) error {
		list, err := b.ListWorkers(ctx)
		if err != nil {
			return err
		}
		for _, w := range list {
			if w.Running == 0 {
				return fmt.Errorf("%s runs nothing: %w", w.Name, cluster.ErrNotYet)
			}
		}
		return nil
	}))
	clustertest.Must(t, b.Workers()[1].Kill())
}

func failForGood(t *testing.T, b *bed) {
	t.Helper()
	clustertest.Submit(t, b.Ctl, cluster.JobFile("fails", cluster.Builtin("a", "fail", "{}").With("retry", map[string]any{"max": 1, "initial": "10ms"})))
}

// dropOutput puts a file where the workers keep output.
func dropOutput(t *testing.T, b *bed) {
	t.Helper()
	for _, w := range b.Workers() {
		logs := filepath.Join(w.Dir, "logs")
		clustertest.Must(t, os.RemoveAll(logs))
		clustertest.Must(t, os.WriteFile(logs, nil, 0o600))
	}
	clustertest.Submit(t, b.Ctl, cluster.JobFile("speaks", cluster.TaskFile{"id": "a", "run": "echo " + strings.Repeat("x", 100)}))
}
