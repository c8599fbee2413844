package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// A coordinator records who did what, without secrets, and the cluster finds that its log
// was deleted.
func TestTheAuditLogOfACoordinatorIsVerifiedAgainstTheCluster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newSecured(t, 1)
	n1 := s.data("n1")
	id := clustertest.Submit(t, s.Ctl, cluster.JobFile("audited", cluster.TaskFile{"id": "a", "run": "echo canary-4711"}))
	clustertest.Must(t, s.Run(ctx, "cancel", id).Err())
	plain := s.Ctl
	plain.Env = append([]string{"DTASK_TOKEN=dtask_wrong"}, s.Ctl.Env...)
	if a := plain.Run(ctx, "list"); a.Code == 0 {
		t.Errorf("a wrong token is accepted: %s", a)
	}
	text := s.audited(n1, "AuthService/Join", "JobService/Submit", "JobService/Cancel", `"object":"job `+id+`"`)
	for _, secret := range []string{"canary-4711", s.worker} {
		if strings.Contains(text, secret) {
			t.Errorf("the audit log has a secret:\n%s", text)
		}
	}

	verify := []string{"audit", "verify", "--data-dir", n1}
	clustertest.Must(t, cluster.Until(ctx, "the cluster knows the log", guard, func(ctx context.Context) error {
		return s.Run(ctx, verify...).Err()
	}))
	clustertest.Must(t, s.nodes[0].Kill())
	clustertest.Must(t, os.RemoveAll(filepath.Join(n1, "audit")))
	s.restart(0)
	clustertest.Must(t, cluster.Until(ctx, "the coordinator raises the alarm", guard, func(ctx context.Context) error {
		if a := s.Run(ctx, "cluster", "status"); !strings.Contains(a.Stdout, "audit-log") {
			return errors.New(a.String())
		}
		return nil
	}))
	if a := s.Run(ctx, verify...); a.Code != 1 || !strings.Contains(a.Stdout, "are missing") {
		t.Errorf("a deleted log is verified: %s", a)
	}
}

// audited returns the audit log in a data directory once it has some texts.
func (s *secured) audited(dir string, texts ...string) (log string) {
	s.t.Helper()
	clustertest.Must(s.t, cluster.Until(s.t.Context(), "the audit log has the calls", guard, func(ctx context.Context) error {
		a := s.Run(ctx, "audit", "tail", "--data-dir", dir, "-n", "1000")
		for _, text := range texts {
			if !strings.Contains(a.Stdout, text) {
				return errors.New("it lacks " + text + ": " + a.String())
			}
		}
		log = a.Stdout
		return a.Err()
	}))
	return log
}
