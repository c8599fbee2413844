package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/internal/audit"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// auditedDir writes the audit log of n1 into a data directory: four lines in two files. It
// returns the heads after each line.
func auditedDir(t *testing.T) (dir string, heads []audit.Head) {
	t.Helper()
	dir = t.TempDir()
	logs := filepath.Join(dir, audit.Directory)
	must(t, os.Mkdir(logs, 0o700))
	head := audit.Head{}
	for _, list := range [][]audit.Record{
		{
			{At: "2026-03-01T09:00:00.000Z", Who: "n1", Method: audit.MethodOpen, Object: "n1", Decision: audit.Allowed, Reason: "the log begins"},
			{At: "2026-03-01T09:00:01.000Z", Who: "ci", Via: "token", Remote: "10.0.0.5:4711", Method: "/dtask.v1.JobService/Submit", NS: "etl", Object: "job 42", Decision: audit.Allowed},
		},
		{
			{At: "2026-03-01T09:00:02.000Z", Who: "n1", Method: audit.MethodOpen, Object: "n1", Decision: audit.Allowed, Reason: "follows line 2"},
			{At: "2026-03-01T09:00:03.000Z", Remote: "10.0.0.9:1", Method: "/dtask.v1.AuthService/ListTokens", Decision: audit.Denied, Reason: "needs credentials", Count: 17},
		},
	} {
		var b []byte
		first := head.Seq + 1
		for _, r := range list {
			b, head = head.Append(b, r)
			heads = append(heads, head)
		}
		must(t, os.WriteFile(filepath.Join(logs, audit.FileName(first)), b, 0o600))
	}
	return dir, heads
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// withHead returns the address of a cluster that knows a line of the log of n1.
func withHead(t *testing.T, head audit.Head) string {
	t.Helper()
	leader := newFakeLeader()
	leader.auditHeads = []*dtaskv1.AuditHead{{ServerId: "n1", Seq: head.Seq, Hash: head.Hash[:], At: 1_772_355_600_000}}
	addr, done, err := leader.serve()
	must(t, err)
	t.Cleanup(done)
	return addr
}

// wantRun runs dtaskctl, and compares the exit code and parts of the output.
func wantRun(t *testing.T, code int, args []string, parts ...string) (stdout string) {
	t.Helper()
	a, out, errs := setup(t, nil)
	if got := run(t.Context(), args, a); got != code {
		t.Errorf("%v: exit code %d, want %d: %s", args, got, code, errs)
	}
	for _, part := range parts {
		if !strings.Contains(out.String()+errs.String(), part) {
			t.Errorf("%v: got\n%s%s\nwant %q", args, out, errs, part)
		}
	}
	return out.String()
}

func TestAnAuditLogIsComparedWithWhatTheClusterKnows(t *testing.T) {
	t.Parallel()
	dir, heads := auditedDir(t)
	addr := withHead(t, heads[3])
	verify := []string{"audit", "verify", "--data-dir", dir}
	online := slices.Concat(verify, []string{"--addr", addr})
	wantRun(t, exitOK, online, "intact: 4 lines in 2 files, number 1 to 4\ncompared with line 4, which the cluster recorded at 2026-03-01T09:00:00Z\n")
	wantRun(t, exitOK, append(online, "-o", "json"), `"server_id": "n1"`, `"known": 4`, `"faults": []`)
	wantRun(t, exitUsage, append(online, "--server", "n2"), "")
	wantRun(t, exitOK, append(verify, "--offline"), "intact: 4 lines in 2 files", "not compared with the cluster")

	must(t, os.Remove(filepath.Join(dir, audit.Directory, audit.FileName(3))))
	wantRun(t, exitFailed, online, "the log ends with line 2, and the cluster knows line 4", "not intact", "the audit log has 1 faults")
	wantRun(t, exitOK, append(verify, "--offline"), "intact: 2 lines")
	wantRun(t, exitFailed, append(online, "-o", "json"), `"text": "the log ends with line 2`)
	wantRun(t, exitUsage, []string{"audit", "verify"}, "--data-dir is required")
	wantRun(t, exitFailed, []string{"audit", "verify", "--offline", "--data-dir", t.TempDir()}, "there is no audit log")
}

func TestLinesOfAnAuditLogAreListed(t *testing.T) {
	t.Parallel()
	dir, _ := auditedDir(t)
	list := []string{"audit", "list", "--data-dir", dir}
	wantRun(t, exitOK, list, "SEQ", "ci", "Submit", "job 42", "denied ×17", "10.0.0.9:1")
	for _, filter := range [][]string{{"--who", "ci"}, {"--method", "Submit"}, {"--object", "job 42"}} {
		got := wantRun(t, exitOK, append(list, filter...), "job 42")
		if strings.Count(got, "\n") != 2 {
			t.Errorf("%v: got\n%s", filter, got)
		}
	}
	if got := wantRun(t, exitOK, append(list, "--denied"), "needs credentials"); strings.Count(got, "\n") != 2 {
		t.Errorf("got\n%s", got)
	}
	if got := wantRun(t, exitOK, append(list, "--limit", "1", "-o", "json"), `"seq": 4`); strings.Contains(got, `"seq": 3`) {
		t.Errorf("got\n%s", got)
	}
}

// Lines that are written later are printed once, also those of further files.
func TestAnAuditLogIsFollowedAcrossItsFiles(t *testing.T) {
	t.Parallel()
	dir, heads := auditedDir(t)
	a, _, stderr := setup(t, nil)
	read, write := io.Pipe()
	a.out = write
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1) // the exit code
	go func() {
		ended <- run(ctx, []string{"audit", "tail", "--data-dir", dir, "-n", "1", "--follow"}, a)
		_ = write.Close()
	}()
	lines := bufio.NewScanner(read)
	next := func(seq int) {
		t.Helper()
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), fmt.Sprintf(`{"seq":%d,`, seq)) {
			t.Fatalf("got %q, want line %d: %s", lines.Text(), seq, stderr)
		}
	}
	next(4)
	head := heads[3]
	logs := filepath.Join(dir, audit.Directory)
	for i, name := range []string{audit.FileName(3), audit.FileName(6)} {
		var b []byte
		b, head = head.Append(b, audit.Record{At: "2026-03-01T09:00:04.000Z", Who: "ci", Method: "/dtask.v1.JobService/Cancel", Decision: audit.Allowed})
		f, err := os.OpenFile(filepath.Join(logs, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // a file of this test
		must(t, err)
		_, err = f.Write(b)
		must(t, errors.Join(err, f.Close()))
		next(5 + i)
	}
	stop()
	if code := <-ended; code != exitInterrupted || lines.Scan() {
		t.Errorf("exit code %d, then %q", code, lines.Text())
	}
}

func TestTheLastLinesOfAnAuditLogArePrintedAsTheyAre(t *testing.T) {
	t.Parallel()
	dir, _ := auditedDir(t)
	var want []byte
	for _, first := range []uint64{1, 3} {
		b, err := os.ReadFile(filepath.Join(dir, audit.Directory, audit.FileName(first)))
		must(t, err)
		want = append(want, b...)
	}
	tail := []string{"audit", "tail", "--data-dir", dir}
	if got := wantRun(t, exitOK, tail); got != string(want) {
		t.Errorf("got\n%s", got)
	}
	if got := wantRun(t, exitOK, append(tail, "-n", "1")); !strings.HasPrefix(got, `{"seq":4,`) || strings.Count(got, "\n") != 1 {
		t.Errorf("got\n%s", got)
	}
}
