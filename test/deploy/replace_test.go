//go:build linux

package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// replaceLimit bounds the whole story of a lost machine. It takes some 20 s.
const replaceLimit = time.Minute

// A replacement shows what is typed on which machine, and what follows, with the seconds since
// its begin.
type replacement struct {
	*site

	began time.Time
}

// tell tells one thing.
func (s *replacement) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(s.t.Output(), "%6.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// quote shows what a command has written.
func (s *replacement) quote(text string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		_, _ = fmt.Fprintf(s.t.Output(), "            %s\n", strings.TrimRight(line, "\n"))
	}
}

// typed types a documented command, without showing its join string.
func (s *replacement) typed(c command, name string, joins []string) string {
	s.tell("%s$ %s", name, joinString.ReplaceAllString(c.typed(name, joins), placeholder))
	return s.play(c, name, joins)
}

// isolate cuts or heals every link of a machine.
func (s *replacement) isolate(name string, change func(ctx context.Context, from, to string) error) {
	s.t.Helper()
	for other := range s.machines {
		if other != name {
			clustertest.Must(s.t, errors.Join(change(s.t.Context(), name, other), change(s.t.Context(), other, name)))
		}
	}
}

// leader returns the server ID of the leader, once it isn't one.
func (s *replacement) leader(not string) (id string) {
	s.t.Helper()
	s.until("a coordinator leads", func() error {
		var status cluster.Status
		err := s.machines["you"].run("", "dtaskctl cluster status -o json").Into(&status)
		if id = status.Leader; err == nil && (id == "" || id == not) {
			err = fmt.Errorf("it is %q", id)
		}
		return err
	})
	return id
}

// The machine of the leader is cut off while a job runs. Another leader continues the job, a
// new machine takes the place of the lost one by one command, and the lost one is refused
// when it returns.
func TestALostMachineIsReplacedWhileAJobRuns(t *testing.T) {
	s := &replacement{site: newSite(t, "m1", "m2", "m3", "m4", "w1", "you"), began: time.Now()}
	you := s.machines["you"]
	tasks := make([]cluster.TaskFile, 100)
	for i := range tasks {
		tasks[i] = cluster.TaskFile{"id": fmt.Sprintf("t%d", i), "run": "sleep 0.2"}
	}
	clustertest.Must(t, os.WriteFile(filepath.Join(you.home(), "job.yaml"), []byte(cluster.JobFile("hundred", tasks...)), 0o600))

	s.tell("Three machines become a cluster, and nobody else can use it:")
	var joins []string
	list := commands(t, "docs/security.md", "## A secured cluster")
	for _, c := range list[:len(list)-1] {
		for _, name := range c.machines {
			if s.machines[name] == nil {
				continue // one worker is enough
			}
			if printed := s.typed(c, name, joins); joins == nil {
				joins = joinString.FindAllString(printed, -1)
			}
		}
	}
	submit := list[len(list)-1]
	s.tell("you$ %s", submit.line)
	job := you.start("submit", submit.line)
	s.await(job, "submitted")

	lost := s.leader("")
	machine := "m" + strings.TrimPrefix(lost, "n")
	s.isolate(machine, s.network.Cut)
	cut := time.Now()
	s.tell("The machine of the leader, %s, is cut off.", machine)
	s.tell("%s leads; a command of yours found it %.1f s after the cut.", s.leader(lost), time.Since(cut).Seconds())

	s.tell("A new machine takes the place of %s:", machine)
	text := you.must("dtaskctl join-token create coordinator")
	replace := command{[]string{"m4"}, "sudo dtaskd join " + placeholder + " --replace " + lost + " --advertise m4:7460 --now"}
	s.typed(replace, "m4", joinString.FindAllString(text, -1))
	s.hasMembers(3, 1)
	s.tell("you$ dtaskctl cluster status")
	s.quote(you.must("dtaskctl cluster status"))

	code, err := job.Wait(t.Context())
	clustertest.Must(t, err)
	s.tell("The command that submitted the job has ended:")
	s.quote(job.output())
	if code != 0 {
		t.Errorf("the job's exit code is %d", code)
	}
	s.isolate(machine, s.network.Heal)
	s.tell("%s is connected again, and is refused:", machine)
	s.until(machine+" is refused", func() error {
		text, err := os.ReadFile(filepath.Join(s.dir, "logs", machine+".stderr"))
		_, refused, found := strings.Cut(string(text), "\ndtaskd: ")
		if !found {
			return errors.Join(err, cluster.ErrNotYet)
		}
		s.quote("dtaskd: " + refused)
		return nil
	})
	s.hasMembers(3, 1)
	if took := time.Since(s.began); took > replaceLimit {
		t.Errorf("it took %v, want at most %v", took, replaceLimit)
	}
}
