package e2e

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// followersOnly uses a client and a worker that know only one follower.
func followersOnly(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx := t.Context()
	follower := c.Followers(clustertest.Leader(t, c))[0]
	w := c.AddWorker("knows-a-follower", "--join", follower.Addr, "--label", "knows=little")
	clustertest.Must(t, w.Start(ctx))
	ctl := c.At(follower)
	id := clustertest.Submit(t, ctl, cluster.JobFile("by-way-of-a-follower",
		cluster.TaskFile{"id": "there", "run": "echo here", "require": map[string]string{"knows": "little"}}))
	job := completed(t, ctl, id)
	if job.Tasks[0].Worker != w.Name {
		t.Errorf("got task on worker %s, want %s", job.Tasks[0].Worker, w.Name)
	}
	for _, args := range [][]string{{"result", id}, {"list"}, {"worker", "list"}, {"cluster", "status"}, {"logs", id + "/there"}} {
		clustertest.Must(t, ctl.Run(ctx, args...).Err())
	}
	clustertest.Must(t, w.Terminate())
	if code, err := w.Wait(ctx); err != nil || code != 0 {
		t.Errorf("drained worker: got exit code %d, %v; want 0", code, err)
	}
}

// strangeConnections opens connections that send nothing, half of a preface, a
// foreign one or random bytes, to all coordinators, and runs jobs meanwhile.
func strangeConnections(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx := t.Context()
	stalls := clustertest.WatchStalls(t)
	before, err := c.Status(ctx)
	clustertest.Must(t, err)
	alone := severalJobs(t, c)
	field := func(s string) []byte { return append([]byte{byte(len(s))}, s...) }
	body := bytes.Join([][]byte{field("ffffffffffffffffffffffffffffffff"), field("n1"), field("00000000000000000000000000000000"), field("n2")}, nil)
	foreign := append([]byte{'D', 'T', 'S', 'K', 1, byte(len(body) >> 8), byte(len(body))}, body...)
	var dialer net.Dialer
	for _, n := range c.Coordinators() {
		for range 25 {
			for _, said := range [][]byte{nil, []byte("DT"), foreign[:12], foreign, []byte("GET / HTTP/1.1\r\n\r\n"), {0x16, 3, 1}} {
				conn, err := dialer.DialContext(ctx, "tcp", n.Addr)
				clustertest.Must(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				_, err = conn.Write(said)
				clustertest.Must(t, err)
			}
		}
	}
	beside := severalJobs(t, c)
	t.Logf("a job takes %v beside %d strange connections, %v without", beside, 3*25*6, alone)
	if beside > 3*alone+slack+stalls.Lost() {
		t.Errorf("a job takes %v beside strange connections, %v without: want at most a little longer", beside, alone)
	}
	after, err := c.Status(ctx)
	clustertest.Must(t, err)
	if (after.Leader != before.Leader || after.Term != before.Term) && stalls.Lost() == 0 {
		t.Errorf("the leader changed from %s in term %d to %s in term %d", before.Leader, before.Term, after.Leader, after.Term)
	}
}

// severalJobs returns the mean time of several small jobs from submission to end.
func severalJobs(t *testing.T, c *cluster.Cluster) time.Duration {
	t.Helper()
	const jobs = 10
	start := time.Now()
	for range jobs {
		completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("small", cluster.Builtin("a", "noop", ""))))
	}
	return time.Since(start) / jobs
}
