package worker

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// checkpoint returns the next checkpoint of the worker.
func (l *leaderEnd) checkpoint(t *testing.T) *dtaskv1.Checkpoint {
	t.Helper()
	return l.next(t, "a checkpoint", func(m *dtaskv1.SessionRequest) bool { return len(m.GetReports().GetCheckpoints()) > 0 }).GetReports().GetCheckpoints()[0]
}

func (l *leaderEnd) saved(t *testing.T, c *dtaskv1.Checkpoint, refusal string) {
	t.Helper()
	l.send(t, &dtaskv1.SessionResponse{CheckpointResults: []*dtaskv1.CheckpointResult{{Attempt: c.GetAttempt(), Number: c.GetNumber(), Error: refusal}}})
}

// again assigns the second attempt of a task, with a checkpoint.
func (l *leaderEnd) again(t *testing.T, c *dtaskv1.Checkpoint, w work) {
	t.Helper()
	w.attempt, w.from = 2, c
	l.assign(t, w)
}

// counting increments its checkpoint, requests another one, and waits to be killed.
const counting = `cd $DTASK_CHECKPOINT_DIR; n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n.x; mv n.x n
echo "from $n"; echo ::checkpoint; test $n -gt 0 || sleep 600`

func TestACheckpointContinuesOnAnotherWorker(t *testing.T) {
	t.Parallel()
	var first *dtaskv1.Checkpoint
	withLeader(t, Config{Slots: 1}, func(b *harness, l *leaderEnd) {
		l.assign(b.t, work{task: 1, body: shell(counting)})
		first = l.checkpoint(b.t)
		if first.GetFormat() != directoryFormat || first.GetNumber() != 1 || first.GetSize() != int64(len(first.GetData())) || first.GetSize() == 0 {
			b.t.Errorf("checkpoint %v", first)
		}
	})
	withLeader(t, Config{Slots: 1}, func(b *harness, l *leaderEnd) {
		l.again(b.t, first, work{task: 1, body: shell(counting)})
		if o := l.outcome(b.t); string(o.GetResult()) != "from 1" {
			b.t.Errorf("outcome %v", o)
		}
	})
}

func TestAFailedAttemptSavesACheckpointWithoutRequest(t *testing.T) {
	t.Parallel()
	withLeader(t, Config{Slots: 1}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 1, body: shell("echo kept > $DTASK_CHECKPOINT_DIR/f; exit 1")}, work{task: 2, body: shell("echo gone > $DTASK_CHECKPOINT_DIR/f")})
		var kept []*dtaskv1.Checkpoint // before its outcome or with it
		l.next(t, "an outcome", func(m *dtaskv1.SessionRequest) bool {
			kept = append(kept, m.GetReports().GetCheckpoints()...)
			return m.GetReports().GetOutcomes() != nil
		})
		if len(kept) == 0 || kept[0].GetAttempt().GetTask() != 1 {
			t.Fatalf("got checkpoints %v until its end", kept)
		}
		for len(l.seen) < 2 {
			l.outcomes(t, 1)
		}
		l.send(t, &dtaskv1.SessionResponse{Ack: &dtaskv1.Ack{Through: 2}})
		l.again(t, kept[0], work{task: 1, body: shell("cat $DTASK_CHECKPOINT_DIR/f")})
		if o := l.outcome(t); string(o.GetResult()) != "kept" {
			t.Errorf("outcome %v", o)
		}
	})
}

func TestCheckpointsAreRepeatedUntilAnsweredAndRateLimited(t *testing.T) {
	t.Parallel()
	n := newRealNetwork(t)
	r := n.listen("n1:1", nil)
	b := start(t, n, Config{Slots: 1, DrainTimeout: -1, CheckpointInterval: time.Millisecond}, nil)
	l := (<-r.sessions).welcome(t, 1)
	next := filepath.Join(t.TempDir(), "next")
	l.assign(t, work{task: 1, body: shell("cd $DTASK_CHECKPOINT_DIR; echo 1 > n; echo ::checkpoint; until test -e " + next +
		"; do sleep 0.01; done; echo 2 > n; echo ::checkpoint; echo ::checkpoint; sleep 600")})
	c := l.checkpoint(t)
	l.end <- nil
	l = (<-r.sessions).welcome(t, 2)
	if again := l.checkpoint(t); cmp.Diff(c, again, protocmp.Transform()) != "" {
		t.Errorf("repeated %v, want %v", again, c)
	}
	writeFile(t, next, "") // requested while the first is not answered
	l.saved(t, c, "")
	if c = l.checkpoint(t); c.GetNumber() < 2 {
		t.Errorf("got next checkpoint %v", c)
	}
	l.saved(t, c, "the checkpoint is refused: over budget")
	l.next(t, "a progress report about the checkpoint", func(m *dtaskv1.SessionRequest) bool {
		return len(m.GetReports().GetProgress()) > 0 && strings.Contains(m.GetReports().GetProgress()[0].GetText(), "over budget")
	})
	b.drain()
	l.serveTillEnd(t)
	if err := <-b.done; err != nil {
		t.Error(err)
	}
	n.stopAll()
}

const large = "cd $DTASK_CHECKPOINT_DIR; test -e big && wc -c < big && exit; head -c 200000 /dev/urandom > big; exit 1"

func TestALargeCheckpointIsSavedInTheStore(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	var c *dtaskv1.Checkpoint
	withLeader(t, Config{Slots: 1, CheckpointStore: store}, func(b *harness, l *leaderEnd) {
		l.assign(b.t, work{task: 1, body: shell(large)})
		c = l.checkpoint(b.t)
		if c.GetFile() != cluster+"/7/1/1-1" || len(c.GetData()) > 0 || len(c.GetSha256()) != 32 {
			b.t.Errorf("checkpoint %v", c)
		}
	})
	path := filepath.Join(store, c.GetFile())
	withLeader(t, Config{Slots: 1, CheckpointStore: store}, func(b *harness, l *leaderEnd) {
		l.again(b.t, c, work{task: 1, body: shell(large)})
		if o := l.outcome(b.t); string(o.GetResult()) != "200000" {
			b.t.Fatalf("outcome %v", o)
		}
		l.send(b.t, &dtaskv1.SessionResponse{Ack: &dtaskv1.Ack{Through: 1}})
	})
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("stored file of a completed task: got %v", err)
	}
}

func TestAnUnreadableCheckpointPreventsTheStart(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	writeFile(t, filepath.Join(store, cluster, "7", "1", "1-1"), "damaged")
	c := &dtaskv1.Checkpoint{Attempt: attemptOf(1), Number: 1, Format: directoryFormat, File: cluster + "/7/1/1-1", Size: 7, Sha256: make([]byte, 32)}
	for name, x := range map[string]struct {
		store string
		file  string
	}{"damaged": {store, c.GetFile()}, "missing": {store, "none"}, "outside": {store, "../../etc/passwd"}, "no store": {"", c.GetFile()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withLeader(t, Config{Slots: 1, CheckpointStore: x.store}, func(b *harness, l *leaderEnd) {
				m := &dtaskv1.Checkpoint{Attempt: c.GetAttempt(), Number: 1, Format: directoryFormat, File: x.file, Size: c.GetSize(), Sha256: c.GetSha256()}
				l.again(b.t, m, work{task: 1, body: shell("true")})
				if o := l.outcome(b.t); o.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED || o.GetFatal() || !strings.Contains(o.GetError(), "restoring checkpoint") {
					b.t.Errorf("outcome %v", o)
				}
			})
		})
	}
}

func TestWithoutAStoreALargeCheckpointStaysAndOverridesOlderOnes(t *testing.T) {
	t.Parallel()
	withLeader(t, Config{Slots: 1}, func(b *harness, l *leaderEnd) {
		t := b.t
		l.assign(t, work{task: 1, body: shell(large)})
		if o := l.outcome(t); o.GetExitCode() != 1 || !b.logs.has("checkpoint not saved") {
			t.Fatalf("outcome %v", o)
		}
		var small bytes.Buffer
		old := t.TempDir()
		writeFile(t, filepath.Join(old, "big"), "old")
		if err := pack(&small, old, nil); err != nil {
			t.Fatal(err)
		}
		l.send(t, &dtaskv1.SessionResponse{Ack: &dtaskv1.Ack{Through: 1}})
		c := &dtaskv1.Checkpoint{Attempt: &dtaskv1.AttemptRef{Job: 7, Task: 1}, Number: 1, Format: directoryFormat, Data: small.Bytes()}
		l.again(t, c, work{task: 1, body: shell(large)})
		if o := l.outcome(t); string(o.GetResult()) != "200000" {
			t.Errorf("outcome %v", o)
		}
	})
}

func TestAHandlerSavesAndReadsItsCheckpoint(t *testing.T) {
	t.Parallel()
	errs := make(chan error, 4)
	save := func(ctx context.Context, _ *Task) ([]byte, error) {
		before := LastCheckpoint(ctx)
		ctx, cancel := context.WithTimeout(ctx, time.Hour) // a derived context works, too
		defer cancel()
		errs <- SaveCheckpoint(ctx, []byte("new"))
		errs <- SaveCheckpoint(ctx, make([]byte, maxCheckpoint+1))
		Progress(ctx, 0.5, "half")
		return append(before, LastCheckpoint(ctx)...), nil
	}
	inBubble(t, Config{Slots: 1}, map[string]Handler{"save": save}, func(b *harness, l *leaderEnd) {
		t := b.t
		old := &dtaskv1.Checkpoint{Attempt: attemptOf(1), Number: 5, Format: dataFormat, Data: []byte("old+")}
		l.assign(t, work{task: 1, typ: "save", attempt: 2, from: old})
		c := l.checkpoint(t)
		synctest.Wait()
		if len(errs) > 0 || string(c.GetData()) != "new" || c.GetFormat() != dataFormat || c.GetNumber() != 1 {
			t.Errorf("got checkpoint %v, and %d returns of SaveCheckpoint before the answer", c, len(errs))
		}
		l.saved(t, c, "")
		if o := l.outcome(t); string(o.GetResult()) != "old+new" {
			t.Errorf("outcome %v", o)
		}
		if err := <-errs; err != nil {
			t.Errorf("saved: %v", err)
		}
		if err := <-errs; err == nil {
			t.Error("an oversized checkpoint: got no error")
		}
	})
}

func TestOnlyTheContextOfAHandlerHasACheckpoint(t *testing.T) {
	t.Parallel()
	if err := SaveCheckpoint(t.Context(), nil); !errors.Is(err, errNoTask) || LastCheckpoint(t.Context()) != nil {
		t.Errorf("without a task: got %v", err)
	}
	Progress(t.Context(), 1, "unused")
}
