package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/audit"
)

// setup returns a log whose steps the test makes itself.
func setup(t *testing.T, change func(cfg *Config)) *Log {
	t.Helper()
	cfg := Config{
		Dir: filepath.Join(t.TempDir(), audit.Directory), ServerID: "n1", Version: "v1", Mode: ModeBestEffort,
		Wall: func() time.Time { return time.UnixMilli(1_700_000_000_000) }, Index: func() uint64 { return 7 },
		Known: func() audit.Head { return audit.Head{} }, Cluster: func() string { return "c1" }, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	l := New(cfg)
	t.Cleanup(l.close)
	return l
}

func call(object string) audit.Record {
	return audit.Record{Who: "ci", Via: "token", Method: "/dtask.v1.JobService/Update", Object: object, Decision: audit.Allowed}
}

// again returns a log of the same directory, as after a restart.
func again(t *testing.T, l *Log) *Log {
	t.Helper()
	l.close()
	return setup(t, func(cfg *Config) { *cfg = l.cfg })
}

// report verifies the files of a log.
func report(t *testing.T, l *Log, known audit.Head) *audit.Report {
	t.Helper()
	files, err := audit.Files(l.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := audit.Verify(files, known)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// records returns the lines of a log, without those that it writes about itself.
func records(t *testing.T, l *Log) (list []audit.Record) {
	t.Helper()
	files, err := audit.Files(l.cfg.Dir)
	if err == nil {
		err = audit.Each(files, func(r *audit.Record) error {
			if r.Method != audit.MethodOpen {
				list = append(list, *r)
			}
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestARestartContinuesTheChainAfterATornLine(t *testing.T) {
	t.Parallel()
	l := setup(t, nil)
	l.Record(call("job 1"))
	l.step(t.Context(), true)
	head, ok := l.Head()
	if !ok || head.Seq != 2 {
		t.Fatalf("got head %d, %t", head.Seq, ok)
	}
	l.close()
	path := filepath.Join(l.cfg.Dir, audit.FileName(1))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"seq":3,"at":"2`)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	l = again(t, l)
	l.Record(call("job 2"))
	l.step(t.Context(), true)
	r := report(t, l, head)
	if len(r.Faults) > 0 || r.Torn || r.Lines != 4 || r.Files != 1 {
		t.Errorf("got %+v", r)
	}
	if got := records(t, l); len(got) != 2 || got[1].Object != "job 2" || got[1].Index != 7 || got[1].At != "2023-11-14T22:13:20.000Z" {
		t.Errorf("got %+v", got)
	}
}

// What follows the last record stays as it is: another file continues the chain.
// A coordinator that founds a cluster opens its log before it knows it.
func TestTheLogNamesTheClusterAsSoonAsItIsKnown(t *testing.T) {
	t.Parallel()
	cluster := ""
	l := setup(t, func(cfg *Config) { cfg.Cluster = func() string { return cluster } })
	l.step(t.Context(), false)
	cluster = "c1"
	for range 2 {
		l.step(t.Context(), false)
	}
	l = again(t, l)
	l.step(t.Context(), false)
	files, err := audit.Files(l.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := audit.Each(files, func(r *audit.Record) error {
		got = append(got, r.Method+" "+r.Cluster)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"audit.open ", "audit.open c1", "audit.open c1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestALineThatIsNoRecordIsKept(t *testing.T) {
	t.Parallel()
	l := setup(t, nil)
	l.Record(call("job 1"))
	l.step(t.Context(), true)
	l.close()
	path := filepath.Join(l.cfg.Dir, audit.FileName(1))
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(b, "garbage\n"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	l = again(t, l)
	l.step(t.Context(), true)
	r := report(t, l, audit.Head{})
	if len(r.Faults) != 1 || r.Files != 2 || r.Last != 3 || !strings.Contains(r.Faults[0].Text, "not a record") {
		t.Errorf("got %+v", r)
	}
}

func TestFullFilesAreFollowedByOthersAndTheOldestAreDeleted(t *testing.T) {
	t.Parallel()
	l := setup(t, func(cfg *Config) { cfg.FileBytes, cfg.Files = 1000, 3 })
	for i := range 40 {
		l.Record(call(fmt.Sprintf("job %d", i)))
		l.step(t.Context(), true)
	}
	head, _ := l.Head()
	r := report(t, l, head)
	if len(r.Faults) > 0 || r.Files != 3 || r.First <= 1 || r.Last != head.Seq {
		t.Errorf("got %+v", r)
	}
	if got := records(t, l); got[len(got)-1].Object != "job 39" {
		t.Errorf("the last line is %+v", got[len(got)-1])
	}
}

func TestDenialsOfACallerBeyondTenInASecondAreOneLine(t *testing.T) {
	t.Parallel()
	l := setup(t, nil)
	denied := audit.Record{Remote: "10.0.0.9:1000", Method: "/dtask.v1.JobService/GetJob", Decision: audit.Denied, Reason: "needs credentials"}
	for i := range 500 {
		denied.Remote = fmt.Sprintf("10.0.0.9:%d", 1000+i) // each connection has another port
		l.Record(denied)
	}
	other := denied
	other.Who, other.Identity, other.Via = "bob", 3, "token"
	l.Record(other)
	l.step(t.Context(), true)
	got := records(t, l)
	if len(got) != 12 || got[10].Who != "bob" || got[11].Count != 490 || got[11].Decision != audit.Denied || got[11].Reason != denied.Reason {
		t.Errorf("got %d lines, the last ones %+v", len(got), got[max(0, len(got)-2):])
	}
	l.Record(denied)
	l.step(t.Context(), true)
	if got := records(t, l); len(got) != 13 || got[12].Count != 0 {
		t.Errorf("the next second has %d lines more", len(got)-12)
	}
}

func TestCallersWhoseDenialsAreCountedAreBounded(t *testing.T) {
	t.Parallel()
	l := setup(t, nil)
	for i := range maxCallers + 100 {
		l.Record(audit.Record{Remote: fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), Method: "m", Decision: audit.Denied})
	}
	l.step(t.Context(), true)
	got := records(t, l)
	last := got[len(got)-1]
	if len(got) != maxCallers+maxDenials+1 || last.Who != "(others)" || last.Count != 90 || last.Remote != "" {
		t.Errorf("%d lines, the last one %+v", len(got), last)
	}
}

// full is a file on a disk that is full while on is set: writes stop after some bytes.
type full struct {
	File

	on *bool
}

func (f full) Write(b []byte) (int, error) {
	if *f.on {
		n, err := f.File.Write(b[:min(len(b), 20)])
		return n, errors.Join(err, syscall.ENOSPC)
	}
	return f.File.Write(b)
}

func onFullDisk(mode Mode, on *bool) func(cfg *Config) {
	return func(cfg *Config) {
		cfg.Mode = mode
		cfg.Open = func(path string) (File, error) {
			f, err := openFile(path)
			return full{f, on}, err
		}
	}
}

func TestABestEffortLogContinuesOnAFullDisk(t *testing.T) {
	t.Parallel()
	on := false
	l := setup(t, onFullDisk(ModeBestEffort, &on))
	l.step(t.Context(), true)
	on = true
	for i := range maxPending + 5 {
		l.Record(call(fmt.Sprintf("job %d", i)))
	}
	l.step(t.Context(), true)
	if err := l.Admit(); err != nil {
		t.Errorf("a change is refused: %v", err)
	}
	if got := l.Problem(); !strings.Contains(got, "can't be written") || !strings.Contains(got, "no space") {
		t.Errorf("got the alarm %q", got)
	}
	if s := l.Stats(); s.Failures != 1 || s.Lost != 5 || s.Lines != 1 {
		t.Errorf("got %+v", s)
	}
	l.step(t.Context(), true) // still full: what was written of a line does not stay
	on = false
	l.step(t.Context(), true)
	r := report(t, l, audit.Head{})
	got := records(t, l)
	if len(r.Faults) > 0 || len(got) != maxPending+1 || l.Problem() != "" {
		t.Errorf("got %d lines, alarm %q, %+v", len(got), l.Problem(), r)
	}
	lost := 0
	for _, x := range got {
		if x.Method == audit.MethodLost {
			lost = int(x.Count)
		}
	}
	if lost != 5 {
		t.Errorf("the log says that %d lines are lost", lost)
	}
}

func TestARequiredLogRefusesChangesOnAFullDisk(t *testing.T) {
	t.Parallel()
	on := false
	l := setup(t, onFullDisk(ModeRequired, &on))
	l.step(t.Context(), true)
	on = true
	l.Record(call("job 1"))
	if err := l.Admit(); err != nil {
		t.Errorf("refused before the first failure: %v", err)
	}
	l.step(t.Context(), true)
	if err := l.Admit(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	l.Record(call("job 2")) // a cancel continues
	on = false
	l.step(t.Context(), true)
	if err := l.Admit(); err != nil {
		t.Errorf("refused although the disk has space: %v", err)
	}
	if got := records(t, l); len(got) != 2 || len(report(t, l, audit.Head{}).Faults) > 0 {
		t.Errorf("got %+v", got)
	}
}

// A crash loses lines that were not synced. They were never reported as the head, so that
// this does not look like a cut.
func TestOnlyLinesThatAreSyncedAreReportedAsHead(t *testing.T) {
	t.Parallel()
	on := false
	l := setup(t, func(cfg *Config) {
		cfg.Open = func(path string) (File, error) {
			f, err := openFile(path)
			return unsynced{f, &on}, err
		}
	})
	l.Record(call("job 1"))
	l.step(t.Context(), true)
	known, ok := l.Head()
	if !ok || known.Seq != 2 {
		t.Fatalf("got head %d, %t", known.Seq, ok)
	}
	on = true
	l.Record(call("job 2"))
	l.step(t.Context(), true)
	if head, _ := l.Head(); head != known {
		t.Errorf("line %d is the head, and was not synced", head.Seq)
	}
	on = false
	l.cfg.Known = func() audit.Head { return known }
	l = again(t, l) // without what was in memory
	l.step(t.Context(), true)
	if r := report(t, l, known); l.Problem() != "" || len(r.Faults) > 0 {
		t.Errorf("alarm %q, %+v", l.Problem(), r)
	}
}

// unsynced is a file on a disk that fails to sync while on is set.
type unsynced struct {
	File

	on *bool
}

func (u unsynced) Sync() error {
	if *u.on {
		return syscall.EIO
	}
	return u.File.Sync()
}

// Calls continue while a write hangs, as on a network file system that does not answer: they
// record their lines, or are refused, at once.
func TestNothingWaitsForADiskThatHangs(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{ModeBestEffort, ModeRequired} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			hanging, resume := make(chan struct{}), make(chan struct{})
			var once sync.Once // only the first write hangs
			l := setup(t, func(cfg *Config) {
				cfg.Mode = mode
				cfg.Open = func(path string) (File, error) {
					f, err := openFile(path)
					return hung{f, func() {
						once.Do(func() { close(hanging); <-resume })
					}}, err
				}
			})
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); l.Run(ctx) }()
			<-hanging
			for range maxPending + 7 {
				l.Record(call("job 1"))
			}
			if err := l.Admit(); (err != nil) != (mode == ModeRequired) {
				t.Errorf("a change while the disk hangs: %v", err)
			}
			if _, ok := l.Head(); ok {
				t.Error("a line is the head, and was not written")
			}
			if got := l.Problem(); !strings.Contains(got, "is written too slowly: 20000 lines are waiting, and 7 were lost") {
				t.Errorf("got the alarm %q", got)
			}
			close(resume)
			stop()
			<-done
			if got := records(t, l); len(got) != maxPending+1 || l.Problem() != "" || len(report(t, l, audit.Head{}).Faults) > 0 {
				t.Errorf("%d lines, alarm %q", len(got), l.Problem())
			}
		})
	}
}

// hung is a file whose writes may hang.
type hung struct {
	File

	wait func()
}

func (h hung) Write(b []byte) (int, error) {
	h.wait()
	return h.File.Write(b)
}

// A log that can't keep up refuses changes before it loses lines.
func TestARequiredLogRefusesChangesThatItCouldLose(t *testing.T) {
	t.Parallel()
	l := setup(t, func(cfg *Config) { cfg.Mode = ModeRequired })
	for range refuseAt {
		l.Record(call("job 1"))
	}
	if err := l.Admit(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	l.step(t.Context(), true)
	if err := l.Admit(); err != nil {
		t.Errorf("got %v", err)
	}
}

// A log without the line that the cluster knows continues behind that line, so that the
// gap is found forever after. This is noticed once.
func TestALogThatWasCutContinuesBehindTheHeadOfTheCluster(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(l *Log, path string) error{
		"cut": func(_ *Log, path string) error { return os.Truncate(path, 0) },
		"deleted": func(_ *Log, path string) error {
			return os.Remove(path)
		},
		"changed": func(_ *Log, path string) error {
			b, head := []byte(nil), audit.Head{}
			for range 5 {
				b, head = head.Append(b, call("job 9"))
			}
			return os.WriteFile(path, b, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := setup(t, nil)
			for range 3 {
				l.Record(call("job 1"))
			}
			l.step(t.Context(), true)
			known, _ := l.Head()
			l.close()
			if err := harm(l, filepath.Join(l.cfg.Dir, audit.FileName(1))); err != nil {
				t.Fatal(err)
			}
			l.cfg.Known = func() audit.Head { return known }
			l = again(t, l)
			l.step(t.Context(), true)
			if got := l.Problem(); !strings.Contains(got, "was cut or changed") {
				t.Errorf("got the alarm %q", got)
			}
			head, _ := l.Head()
			if head.Seq <= known.Seq || len(report(t, l, head).Faults) == 0 {
				t.Errorf("head %d: got %+v", head.Seq, report(t, l, head))
			}
			l = again(t, l)
			l.step(t.Context(), true)
			if got := l.Problem(); got != "" {
				t.Errorf("a second restart finds %q", got)
			}
		})
	}
}

func TestALogIsNotComparedWithWhatItHasWrittenItself(t *testing.T) {
	t.Parallel()
	var known audit.Head
	l := setup(t, func(cfg *Config) { cfg.Known = func() audit.Head { return known } })
	for range 5 {
		l.Record(call("job 1"))
		l.step(t.Context(), true)
		known, _ = l.Head()
		l.Record(call("job 1"))
		l.step(t.Context(), true)
	}
	l = again(t, l)
	l.step(t.Context(), true)
	if l.Problem() != "" || l.confirmed != known || len(report(t, l, known).Faults) > 0 {
		t.Errorf("got the alarm %q", l.Problem())
	}
}

func TestRunWritesWhatIsLeftWhenItEnds(t *testing.T) {
	t.Parallel()
	l := setup(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Record(call("job 1"))
	l.Run(ctx)
	if got := records(t, l); len(got) != 1 {
		t.Errorf("got %+v", got)
	}
}
