package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// loadJobs is how many jobs a securedLoad has at a time: one of them has tasks that are
// ready when another one ends.
const loadJobs = 3

// A securedLoad submits jobs one after another, all of which must complete without a
// retry, and notes when tasks complete.
type securedLoad struct {
	s     *secured
	file  string
	batch int // tasks of a job
	group sync.WaitGroup
	stop  context.CancelFunc

	mu      sync.Mutex // guards what follows
	ids     []string
	jobs    []cluster.Job // as they ended
	failed  error
	last    time.Time // of a completion
	longest time.Duration
}

// loadOf starts a load of a job file with batch tasks.
func (s *secured) loadOf(batch int, file string) *securedLoad {
	s.t.Helper()
	l := &securedLoad{s: s, batch: batch, file: file}
	c := s.client()
	ctx := s.t.Context()
	loading, stop := context.WithCancel(ctx)
	l.stop = stop
	for range loadJobs {
		l.group.Go(func() {
			for loading.Err() == nil {
				if err := l.one(ctx, c); err != nil {
					l.mu.Lock()
					l.failed = err
					l.mu.Unlock()
					return
				}
			}
		})
	}
	s.t.Cleanup(func() {
		stop()
		l.group.Wait()
	})
	return l
}

// one submits a job, and watches it until it ends.
func (l *securedLoad) one(ctx context.Context, c *client.Client) error {
	id, err := l.s.Submit(ctx, l.file)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.ids = append(l.ids, id)
	l.mu.Unlock()
	completed := uint32(0)
	for job, err := range c.Watch(ctx, id) {
		if err != nil {
			return fmt.Errorf("watching job %s: %w", id, err)
		}
		if job.GetTasksCompleted() > completed {
			completed = job.GetTasksCompleted()
			l.note(time.Now())
		}
	}
	return nil
}

// note notes that tasks have completed.
func (l *securedLoad) note(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last.IsZero() {
		l.longest = max(l.longest, now.Sub(l.last))
	}
	l.last = now
}

// end waits for the jobs, checks them, and returns how many tasks they had and the longest
// time in which none completed, until the load began to end.
func (l *securedLoad) end() (tasks int, longest time.Duration) {
	l.s.t.Helper()
	l.mu.Lock()
	longest = l.longest
	l.mu.Unlock()
	l.stop()
	l.group.Wait()
	clustertest.Must(l.s.t, l.failed)
	for _, id := range l.ids {
		// Requeues don't count: an idle worker takes what waits at another one.
		job := completed(l.s.t, l.s.Ctl, id)
		if job.TasksCompleted != l.batch || job.TasksFailed+job.Retries != 0 {
			l.s.t.Errorf("job %s: %+v", id, job)
		}
		l.jobs = append(l.jobs, job)
	}
	return len(l.ids) * l.batch, longest
}

// client returns a client with the context of the login, which follows the CA.
func (s *secured) client() *client.Client {
	s.t.Helper()
	dir := filepath.Join(s.dir, "me", "dtask")
	text, err := os.ReadFile(filepath.Join(dir, "contexts.yaml"))
	clustertest.Must(s.t, err)
	var saved struct {
		Contexts []struct {
			Addresses []string `yaml:"addresses"`
			CA        string   `yaml:"ca"`
			TokenFile string   `yaml:"token_file"`
		} `yaml:"contexts"`
	}
	clustertest.Must(s.t, yaml.Unmarshal(text, &saved))
	in := saved.Contexts[0]
	token, err := os.ReadFile(filepath.Join(dir, in.TokenFile))
	clustertest.Must(s.t, err)
	creds, err := client.Trust{CA: in.CA}.FollowCA(func(string) {})
	clustertest.Must(s.t, err)
	c, err := client.New(client.Config{Addrs: in.Addresses, Credentials: creds, Token: client.Secret(string(token[:len(token)-1]))})
	clustertest.Must(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// A gap of the load is measured from one event to the next, whatever job it belongs to.
func TestTheLongestGapOfALoadIsBetweenTwoCompletions(t *testing.T) {
	t.Parallel()
	var l securedLoad
	begun := time.Now()
	for _, at := range []time.Duration{0, 3, 10, 12} {
		l.note(begun.Add(at))
	}
	if l.longest != 7 {
		t.Errorf("got %d", l.longest)
	}
}
