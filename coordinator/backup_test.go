package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator/offline"
	"github.com/dtask/dtask/internal/audit"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// saveTo saves a backup in a file.
func saveTo(t *testing.T, c *client.Client, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Backup(t.Context(), client.BackupOptions{History: true}, func() (io.Writer, error) {
		_, err := file.Seek(0, io.SeekStart)
		return file, errors.Join(err, file.Truncate(0))
	})
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// noop submits a job under a key and returns its number.
func noop(t *testing.T, c *client.Client, key string) string {
	t.Helper()
	job, err := spec.Single(spec.SingleTask{Type: "noop", Name: "job"})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := c.Submit(t.Context(), job, client.SubmitOptions{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return stored.ID
}

// A follower writes the backup of a cluster with TLS, behind a barrier of the leader. The
// cluster that is restored from it has the jobs that were acknowledged before, none of the
// tokens, and other numbers.
func TestABackupOfASecuredClusterIsWrittenByAFollowerAndRestored(t *testing.T) {
	t.Parallel()
	a := newAttacked(t)
	file := filepath.Join(t.TempDir(), "cluster.dtbk")
	before := noop(t, a.calm, "before")
	var report *offline.BackupReport
	// The followers may be too busy to tell their state within a second: then any member is asked.
	until(t, "a follower writes the backup", func() (err error) {
		leader := a.status().GetLeader()
		a.underLoad(func() { saveTo(t, a.calm, file) })
		if report, err = offline.InspectBackup(file, ""); err != nil {
			t.Fatal(err)
		}
		if now := a.status().GetLeader(); report.ServerID == leader || report.ServerID == now {
			err = fmt.Errorf("%s wrote it, and leads or led", report.ServerID)
		}
		return err
	})
	noop(t, a.calm, "after")
	if len(report.Members) != 3 || report.Jobs["pending"] < 1 || report.Identities != 1 {
		t.Errorf("got %+v", report)
	}
	token, _, err := a.calm.CreateToken(t.Context(), client.TokenOptions{Name: "reader", Role: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	reader := a.client(client.Config{Addrs: []string{a.address}, Credentials: a.creds, Token: token, Timeout: hostileTimeout})
	if err := reader.Backup(t.Context(), client.BackupOptions{}, func() (io.Writer, error) { return io.Discard, nil }); !errors.Is(err, client.ErrRefused) {
		t.Errorf("a reader saved a backup: %v", err)
	}

	cfg := Config{
		ID: "n1", DataDir: filepath.Join(shortDir(t), "n1"), TLSDir: t.TempDir(), Listen: "127.0.0.1:0", MinFree: new(MinFree), Logger: slog.New(slog.DiscardHandler),
	}
	done, err := offline.Restore(t.Context(), offline.RestoreConfig{
		File: file, DataDir: cfg.DataDir, Server: "n1", Address: "127.0.0.1:1", Kind: LogBolt, Expect: report.ClusterID, Logger: cfg.Logger,
	}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a.issue(cfg.TLSDir, done.NewCluster)
	secured, local := a.startRestored(cfg)
	a.await("answer of the new leader", func() (bool, error) {
		_, err := local.Job(t.Context(), before, client.ReadOptions{})
		return err == nil, err
	})
	if again := noop(t, local, "before"); again != before {
		t.Errorf("the key of job %s gave job %s", before, again)
	}
	if next := noop(t, local, "after"); len(next) < 7 {
		t.Errorf("the next job is %s, want a number after the gap", next)
	}
	if _, err := secured.Job(t.Context(), before, client.ReadOptions{}); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("with the token of the old cluster: got %v", err)
	}
}

// What was revoked after the backup stays revoked in the restored cluster that keeps the
// tokens: the audit logs of the old coordinators have it.
func TestWhatWasRevokedAfterABackupStaysRevokedWhenItIsRestored(t *testing.T) {
	t.Parallel()
	a := newAttacked(t)
	file := filepath.Join(t.TempDir(), "cluster.dtbk")
	kept, _, err := a.calm.CreateToken(t.Context(), client.TokenOptions{Name: "kept", Role: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	revoked, identity, err := a.calm.CreateToken(t.Context(), client.TokenOptions{Name: "revoked", Role: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	job := noop(t, a.calm, "before")
	saveTo(t, a.calm, file)
	_, later, err := a.calm.CreateToken(t.Context(), client.TokenOptions{Name: "later", Role: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint64{identity.GetId(), later.GetId()} {
		if _, err := a.calm.RevokeToken(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	a.awaitRecorded(dtaskv1.AuthService_RevokeToken_FullMethodName, 2)

	cfg := Config{
		ID: "n1", DataDir: filepath.Join(shortDir(t), "n1"), TLSDir: t.TempDir(), Listen: "127.0.0.1:0", MinFree: new(MinFree), Logger: slog.New(slog.DiscardHandler),
	}
	restoration := offline.RestoreConfig{
		File: file, DataDir: cfg.DataDir, Server: "n1", Address: "127.0.0.1:1", Kind: LogBolt, KeepTokens: true, Logger: cfg.Logger,
	}
	for _, dir := range a.dirs {
		restoration.Revocations = append(restoration.Revocations, filepath.Join(dir, audit.Directory))
	}
	done, err := offline.Restore(t.Context(), restoration, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("token %d", later.GetId()); done.Revoked != 1 || done.RevokedBefore != 0 || !slices.Equal(done.UnknownRevocations, []string{want}) {
		t.Errorf("got %+v, want one revocation and %s unknown", done, want)
	}
	a.issue(cfg.TLSDir, done.NewCluster)
	address := a.runRestored(cfg)
	reading := func(token client.Secret) error {
		_, err := a.client(client.Config{Addrs: []string{address}, Credentials: a.creds, Token: token, Timeout: hostileTimeout}).Job(t.Context(), job, client.ReadOptions{})
		return err
	}
	a.await("answer to the token that was kept", func() (bool, error) {
		err := reading(kept)
		return err == nil, err
	})
	if err := reading(revoked); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("with the token that was revoked after the backup: got %v", err)
	}
}

// awaitRecorded returns when the audit logs have a number of lines about a method.
func (a *attacked) awaitRecorded(method string, want int) {
	a.Helper()
	a.await("line in an audit log", func() (bool, error) {
		lines := 0
		for _, dir := range a.dirs {
			files, err := audit.Files(filepath.Join(dir, audit.Directory))
			if err == nil {
				err = audit.Each(files, func(r *audit.Record) error {
					if r.Method == method {
						lines++
					}
					return nil
				})
			}
			if err != nil {
				return false, err
			}
		}
		return lines >= want, fmt.Errorf("%d lines about %s", lines, method)
	})
}

// underLoad does something while jobs are submitted.
func (a *attacked) underLoad(do func()) {
	a.Helper()
	over := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		for jobs := 0; ; jobs++ {
			select {
			case <-over:
				a.Logf("%d jobs meanwhile", jobs)
				return
			default:
			}
			if err := a.work(a.Context()); err != nil {
				a.Errorf("submitting during a backup: %v", err)
				return
			}
		}
	})
	do()
	close(over)
	load.Wait()
}

// issue writes the certificate of n1 in a cluster, from the same CA.
func (a *attacked) issue(dir, clusterID string) {
	a.Helper()
	key, err := tlsconf.NewKey()
	if err != nil {
		a.Fatal(err)
	}
	cert, err := a.ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: "n1", Key: key.Public(), ClusterID: clusterID}, time.Now())
	if err == nil {
		err = tlsconf.Save(dir, cert, key, a.ca.Roots...)
	}
	if err != nil {
		a.Fatal(err)
	}
}

// startRestored runs a restored coordinator until the test ends. It returns a client with the
// token of the old cluster, and one on the socket.
func (a *attacked) startRestored(cfg Config) (secured, local *client.Client) {
	a.Helper()
	address := a.runRestored(cfg)
	return a.client(client.Config{Addrs: []string{address}, Credentials: a.creds, Token: a.token.Text(), Timeout: hostileTimeout}),
		a.client(client.Config{Addrs: []string{"unix:" + cfg.Socket()}, Timeout: hostileTimeout})
}

// runRestored runs a restored coordinator until the test ends, and returns its address.
func (a *attacked) runRestored(cfg Config) (address string) {
	a.Helper()
	ctx, stop := context.WithCancel(context.Background())
	started := make(chan string, 1)
	cfg.Started = func(listen, _ string) { started <- listen }
	var running sync.WaitGroup
	a.Cleanup(func() {
		stop()
		running.Wait()
	})
	failed := make(chan error, 1)
	running.Go(func() { failed <- Run(ctx, cfg) })
	select {
	case address := <-started:
		return address
	case err := <-failed:
		a.Fatalf("the restored coordinator did not start: %v", err)
		return ""
	}
}

// The leader of a cluster with TLS has a follower write the backup, which is restored as any
// other. A user with a token can't make a coordinator write one.
func TestAScheduledBackupOfASecuredClusterIsWrittenByAFollower(t *testing.T) {
	t.Parallel()
	a := newAttacked(t)
	dir := t.TempDir()
	job := noop(t, a.calm, "before")
	a.await("schedule", func() (bool, error) {
		_, err := a.calm.SetBackupSchedule(t.Context(), client.BackupSchedule{Every: time.Hour, To: "file://" + dir})
		return err == nil, err
	})
	var last *dtaskv1.BackupRun
	a.await("backup", func() (bool, error) {
		got, err := a.calm.BackupStatus(t.Context(), client.ReadOptions{})
		if failed := got.GetFailed(); failed != nil {
			err = errors.New(failed.GetError())
		}
		last = got.GetLast()
		return last != nil, err
	})
	report, err := offline.InspectBackup(filepath.Join(dir, last.GetFile()), "")
	if err != nil {
		t.Fatal(err)
	}
	if last.GetServerId() == a.leader || report.ServerID != last.GetServerId() || report.Index != last.GetIndex() || report.Jobs["pending"] != 1 {
		t.Errorf("job %s, leader %s: got %v, %+v", job, a.leader, last, report)
	}
	conn, err := grpc.NewClient(a.address, grpc.WithTransportCredentials(a.creds))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", a.token.Header())
	_, err = dtaskv1.NewAdminServiceClient(conn).WriteBackup(ctx, &dtaskv1.WriteBackupRequest{To: "file://" + dir})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("an admin called WriteBackup: %v", err)
	}
}
