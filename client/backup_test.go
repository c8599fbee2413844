package client

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// backups is the AdminService of a fake that sends these messages and then fails with err,
// if it is set.
type backups struct {
	dtaskv1.UnimplementedAdminServiceServer

	data []string
	err  error
}

func (b *backups) Backup(_ *dtaskv1.BackupRequest, s grpc.ServerStreamingServer[dtaskv1.BackupResponse]) error {
	for _, d := range b.data {
		if err := s.Send(&dtaskv1.BackupResponse{Data: []byte(d)}); err != nil {
			return err
		}
	}
	return b.err
}

// backupCluster serves a leader at n1:1 and followers behind it, of which n3 lags most.
func backupCluster(t *testing.T, services map[string]*backups) *Client {
	t.Helper()
	n, c := setup(t, Config{Addrs: []string{"n1:1"}})
	members := []*dtaskv1.Member{
		{Id: "n1", Address: "n1:1", State: "leader", Voter: true},
		{Id: "n3", Address: "n3:1", State: "follower", Voter: true, Lag: 9},
		{Id: "n2", Address: "n2:1", State: "follower", Voter: true},
		{Id: "n4", Address: "n4:1", State: "follower"},
	}
	for addr, service := range services {
		f := &fake{status: func() (*dtaskv1.StatusResponse, error) {
			return &dtaskv1.StatusResponse{Leader: "n1", Replica: addr[:2], Members: members, Term: 1}, nil
		}}
		t.Cleanup(n.start(addr, f, f, service))
	}
	return c
}

// saveBackup returns what the last attempt has written, and how many there were.
func saveBackup(t *testing.T, c *Client) (text string, attempts int, err error) {
	t.Helper()
	var out bytes.Buffer
	err = c.Backup(t.Context(), BackupOptions{}, func() (io.Writer, error) {
		attempts++
		out.Reset()
		return &out, nil
	})
	return out.String(), attempts, err
}

func TestABackupComesFromTheFollowerWithTheLeastLag(t *testing.T) {
	t.Parallel()
	c := backupCluster(t, map[string]*backups{
		"n1:1": {data: []string{"leader"}}, "n2:1": {data: []string{"follower ", "n2"}}, "n3:1": {data: []string{"n3"}}, "n4:1": {data: []string{"n4"}},
	})
	if text, attempts, err := saveBackup(t, c); err != nil || text != "follower n2" || attempts != 1 {
		t.Errorf("got %q after %d attempts, %v", text, attempts, err)
	}
}

// A stream that breaks is begun again, at another coordinator, and nothing is written twice.
func TestABrokenBackupIsBegunAgain(t *testing.T) {
	t.Parallel()
	c := backupCluster(t, map[string]*backups{
		"n1:1": {data: []string{"leader"}}, "n2:1": {data: []string{"half"}, err: status.Error(codes.Unavailable, "stopping")},
		"n3:1": {err: status.Error(codes.Unavailable, "stopping")},
	})
	if text, attempts, err := saveBackup(t, c); err != nil || text != "leader" || attempts < 2 {
		t.Errorf("got %q after %d attempts, %v", text, attempts, err)
	}
}

func TestABackupThatBreaksEachTimeFails(t *testing.T) {
	t.Parallel()
	broken := &backups{data: []string{"half"}, err: status.Error(codes.Unavailable, "stopping")}
	c := backupCluster(t, map[string]*backups{"n1:1": broken, "n2:1": broken})
	if _, attempts, err := saveBackup(t, c); !errors.Is(err, ErrUnreachable) || attempts != maxBackupBreaks {
		t.Errorf("got %v after %d attempts", err, attempts)
	}
}

func TestAFullDiskEndsABackup(t *testing.T) {
	t.Parallel()
	c := backupCluster(t, map[string]*backups{"n1:1": {data: []string{"leader"}}, "n2:1": {data: []string{"n2"}}})
	full, attempts := errors.New("no space left on device"), 0
	err := c.Backup(t.Context(), BackupOptions{}, func() (io.Writer, error) {
		attempts++
		return failingWriter{full}, nil
	})
	if !errors.Is(err, full) || attempts != 1 {
		t.Errorf("got %v after %d attempts", err, attempts)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
