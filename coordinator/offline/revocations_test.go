package offline

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/audit"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// auditLog is the audit log of a coordinator, as a file of it has it.
type auditLog struct {
	text []byte
	head audit.Head
}

func (l *auditLog) add(records ...audit.Record) *auditLog {
	for _, r := range records {
		if r.At == "" {
			r.At = audit.FormatTime(time.UnixMilli(7))
		}
		l.text, l.head = l.head.Append(l.text, r)
	}
	return l
}

// file writes the log into a directory, as a coordinator does.
func (l *auditLog) file(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, audit.FileName(1))
	if err := os.WriteFile(path, l.text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func openedIn(cluster string) audit.Record {
	return audit.Record{Who: "n1", Method: audit.MethodOpen, Object: "n1", Decision: audit.Allowed, Cluster: cluster}
}

func revokedToken(number string) audit.Record {
	return audit.Record{Who: "root", Method: dtaskv1.AuthService_RevokeToken_FullMethodName, Object: number, Decision: audit.Allowed}
}

func revokedJoinToken(number string) audit.Record {
	return audit.Record{Who: "root", Method: dtaskv1.AuthService_RevokeJoinToken_FullMethodName, Object: number, Decision: audit.Allowed}
}

// restoredFrom restores the backup of the tests with audit logs.
func restoredFrom(t *testing.T, m *fsm.Machine, logs ...string) (*Restored, RestoreConfig, error) {
	t.Helper()
	cfg := restoring(t, backUp(t, m, nil))
	cfg.KeepTokens, cfg.Revocations = true, logs
	done, err := Restore(t.Context(), cfg, time.Now())
	return done, cfg, err
}

func TestRevocationsOfAuditLogsAreRepeated(t *testing.T) {
	t.Parallel()
	m, _ := stateToSave(t)
	dir := t.TempDir()
	denied := revokedToken("1")
	denied.Decision = audit.Denied
	failed := revokedToken("9")
	failed.Decision = audit.Failed
	new(auditLog).add(openedIn(oldCluster), denied, failed, revokedToken("2")).file(t, dir)
	other := new(auditLog).add(openedIn(oldCluster), revokedToken("1"), revokedJoinToken("3")).file(t, t.TempDir())
	done, cfg, err := restoredFrom(t, m, dir, other)
	if err != nil {
		t.Fatal(err)
	}
	if done.Revoked != 1 || done.RevokedBefore != 0 || !slices.Equal(done.UnknownRevocations, []string{"token 2", "join token 3"}) || done.Identities != 1 {
		t.Errorf("got %+v", done)
	}
	var text strings.Builder
	done.Write(&text)
	for _, want := range []string{"1 applied, 0 that the backup has, too", "token 2: revoked, and not in the backup", "join token 3: revoked"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &text)
		}
	}
	state := stateOf(t, cfg.DataDir)
	state.Read(func(s *fsm.State, _ uint64) {
		if i := s.Identity(1); i == nil || !i.IsRevoked() || i.RevokedMS != 7 || i.RevokedBy != "root" {
			t.Errorf("got %+v", i)
		}
	})
}

// stateOf is the state in a data directory.
func stateOf(t *testing.T, dir string) *fsm.Machine {
	t.Helper()
	d, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	m, _, err := d.replay(archived{}, math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A coordinator that keeps its directory after a recovery records what happens in two
// clusters, whose tokens may have the same numbers.
func TestOnlyTheLinesOfTheClusterCount(t *testing.T) {
	t.Parallel()
	m, _ := stateToSave(t)
	log := new(auditLog).add(openedIn(oldCluster), revokedToken("7"), openedIn("another"), revokedToken("1"), openedIn(""), revokedToken("1"))
	done, _, err := restoredFrom(t, m, log.file(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if done.Revoked != 0 || !slices.Equal(done.UnknownRevocations, []string{"token 7"}) {
		t.Errorf("got %+v", done)
	}
}

// A coordinator that served no call since it started may not know its cluster when it opens
// its log.
func TestALogWithoutAnyCallRevokesNothing(t *testing.T) {
	t.Parallel()
	m, _ := stateToSave(t)
	quiet := new(auditLog).add(openedIn("")).file(t, t.TempDir())
	used := new(auditLog).add(openedIn(oldCluster), revokedToken("1")).file(t, t.TempDir())
	if done, _, err := restoredFrom(t, m, quiet, used); err != nil || done.Revoked != 1 {
		t.Errorf("got %+v, %v", done, err)
	}
}

// Logs of builds that do not record the cluster are recognized by the line that the backup
// knows, also by the one that follows it.
func TestALogWithoutItsClusterIsRecognizedByALineThatTheBackupKnows(t *testing.T) {
	t.Parallel()
	known := new(auditLog).add(openedIn(""))
	head := known.head
	rest := &auditLog{head: head}
	for _, log := range []*auditLog{known.add(revokedToken("1")), rest.add(revokedToken("1"))} {
		m, _ := stateToSave(t)
		apply(t, m, &fsm.RecordAuditHead{AuditHead: fsm.AuditHead{ServerID: "n1", Seq: head.Seq, Hash: head.Hash, AtMS: 1}})
		if done, _, err := restoredFrom(t, m, log.file(t, t.TempDir())); err != nil || done.Revoked != 1 {
			t.Errorf("got %+v, %v", done, err)
		}
	}
}

func apply(t *testing.T, m *fsm.Machine, op fsm.Op) {
	t.Helper()
	if a, ok := m.Apply(m.Index()+1, fsm.Encode(nil, fsm.Entry{NowMS: 9, Ops: []fsm.Op{op}})).(fsm.Applied); !ok || a.Rejected != fsm.Accepted {
		t.Fatalf("%T: %+v", op, a)
	}
}

// The worker whose name the join took is another one than that which joined.
func TestAWorkerThatWasReplacedAfterTheBackupIsRevoked(t *testing.T) {
	t.Parallel()
	m, _ := stateToSave(t)
	apply(t, m, &fsm.CreateIdentity{
		Name: "w1", Grant: fsm.Grant{Role: fsm.RoleWorker}, CreatedBy: "x", CreatedMS: 1,
		Credential: fsm.Credential{Kind: fsm.KeyCredential, Hash: [32]byte{2}},
	})
	var worker fsm.IdentityID
	m.Read(func(s *fsm.State, _ uint64) { worker = s.IdentityByName("w1", true).ID })
	for made, want := range map[fsm.IdentityID]int{worker: 0, worker + 1: 1, 0: 0} {
		join := audit.Record{
			Method: dtaskv1.AuthService_Join_FullMethodName, Object: "worker w1" + audit.Replacing + ", join token 1", Decision: audit.Allowed,
			Index: m.Index() + 9, Made: uint64(made), // recorded after the backup, which may have the join
		}
		done, _, err := restoredFrom(t, m, new(auditLog).add(openedIn(oldCluster), join).file(t, t.TempDir()))
		if err != nil || done.Revoked != want {
			t.Errorf("identity %d joined: got %+v, %v", made, done, err)
		}
	}
}

// A coordinator that crashes while it writes leaves half a line at the end of its newest file.
func TestTheLastLineOfADirectoryMayBeIncomplete(t *testing.T) {
	t.Parallel()
	m, _ := stateToSave(t)
	dir := t.TempDir()
	log := new(auditLog).add(openedIn(oldCluster), revokedToken("1"), revokedToken("2"))
	log.text = log.text[:len(log.text)-2]
	path := log.file(t, dir)
	done, _, err := restoredFrom(t, m, dir)
	if err != nil {
		t.Fatal(err)
	}
	if line := path + ":3"; done.Revoked != 1 || len(done.UnknownRevocations) > 0 || !slices.Equal(done.IncompleteLines, []string{line}) {
		t.Errorf("got %+v", done)
	}
	var text strings.Builder
	done.Write(&text)
	if want := path + ":3: a crash cut this last line"; !strings.Contains(text.String(), want) {
		t.Errorf("%q is missing in\n%s", want, &text)
	}
	newer := new(auditLog).add(openedIn(oldCluster))
	if err := os.WriteFile(filepath.Join(dir, audit.FileName(9)), newer.text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := restoredFrom(t, m, dir); err == nil || !strings.Contains(err.Error(), path+":3: not a part of an audit log") {
		t.Errorf("an older file: got %v", err)
	}
}

func TestAnAuditLogThatCanNotBeUsedLeavesNothing(t *testing.T) {
	t.Parallel()
	valid := func() *auditLog { return new(auditLog).add(openedIn(oldCluster), revokedToken("1")) }
	changed := valid().add(revokedToken("2"))
	changed.text = bytes.Replace(changed.text, []byte(`"object":"1"`), []byte(`"object":"3"`), 1)
	cut := valid()
	cut.text = cut.text[:len(cut.text)-2]
	late := revokedToken("1")
	late.At = "yesterday"
	for name, test := range map[string]struct {
		log  *auditLog
		want string
	}{
		"other text":    {&auditLog{text: []byte("token 1\n")}, ":1: not a part of an audit log as it was written: the line is not a record"},
		"empty":         {&auditLog{}, ":1: not a part of an audit log as it was written: the file is empty"},
		"changed":       {changed, ":3: not a part of an audit log as it was written: line 3 of the log does not follow line 2"},
		"cut":           {cut, ":2: not a part of an audit log as it was written: the line is incomplete: copy the file again"},
		"other cluster": {new(auditLog).add(openedIn("another"), revokedToken("1")), " is an audit log of cluster another, and the backup is of " + oldCluster},
		"unknown":       {new(auditLog).add(openedIn(""), revokedToken("1")), " shows that it is of cluster " + oldCluster},
		"number":        {valid().add(revokedToken("one")), `:3: invalid object "one" of RevokeToken: must be a number`},
		"time":          {valid().add(late), `:3: invalid time "yesterday"`},
	} {
		m, _ := stateToSave(t)
		path := test.log.file(t, t.TempDir())
		_, cfg, err := restoredFrom(t, m, path)
		if _, refused := errors.AsType[*RefusedError](err); !refused || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
		if left, err := os.ReadDir(filepath.Dir(cfg.DataDir)); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
	m, _ := stateToSave(t)
	if _, _, err := restoredFrom(t, m, filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, _, err := restoredFrom(t, m, t.TempDir()); err == nil || !strings.Contains(err.Error(), "has no file of an audit log: name DATA-DIR/audit of a coordinator") {
		t.Errorf("got %v", err)
	}
}
