package offline

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

var (
	benchHistory = flag.Int("history", 20_000, "jobs in the history of BenchmarkRestore")
	benchPending = flag.Int("pending", 20_000, "pending tasks of BenchmarkRestore")
)

// BenchmarkRestore restores a backup with pending tasks, all in one job, and jobs of one task
// in the history.
func BenchmarkRestore(b *testing.B) {
	m, h := stateToSave(b)
	apply := func(ops ...fsm.Op) {
		if a, ok := m.Apply(m.Index()+1, fsm.Encode(nil, fsm.Entry{NowMS: 10, Ops: ops})).(fsm.Applied); !ok || a.Rejected != fsm.Accepted {
			b.Fatalf("%+v", a)
		}
	}
	header := func(i int) []byte {
		text, err := proto.Marshal(&dtaskv1.JobHeader{
			Name: fmt.Sprintf("job-%d", i%1000), Owner: fmt.Sprintf("owner-%d", i%20), Policies: []*dtaskv1.TaskPolicy{{Type: "noop", TimeoutMs: 1000}},
		})
		if err != nil {
			b.Fatal(err)
		}
		return text
	}
	for i := range *benchHistory {
		id := fsm.JobID(4 + i)
		tasks := fsm.NewChunkBuilder(0)
		tasks.Add("task", 0, nil, make([]byte, 32))
		chunk := tasks.Chunk()
		apply(&fsm.BeginUpload{ID: id, Key: fmt.Sprintf("key-%d", id), Header: header(i), Total: 1},
			&fsm.AddChunk{Job: id, Chunk: chunk}, &fsm.SealUpload{Job: id, Sum: chunk.Sum(0)},
			&fsm.Assign{Items: []fsm.AssignItem{fsm.AssignItem(held(id))}},
			&fsm.Complete{Items: []fsm.CompleteItem{{HeldAttempt: held(id), DurationMS: 5, Result: []byte("fine")}}},
			&fsm.Archive{Items: []fsm.JobID{id}}, &fsm.ForgetKeys{Items: []string{fmt.Sprintf("key-%d", id)}})
	}
	waiting, sum := fsm.JobID(4+*benchHistory), uint32(0)
	ops := []fsm.Op{&fsm.BeginUpload{ID: waiting, Key: "waiting", Header: header(0), Total: uint32(*benchPending)}}
	for first := 0; first < *benchPending; first += 1000 {
		tasks := fsm.NewChunkBuilder(uint32(first))
		for i := first; i < min(first+1000, *benchPending); i++ {
			tasks.Add(fmt.Sprintf("t%d", i), 0, nil, make([]byte, 32))
		}
		chunk := tasks.Chunk()
		sum = chunk.Sum(sum)
		ops = append(ops, &fsm.AddChunk{Job: waiting, Chunk: chunk})
	}
	apply(append(ops, &fsm.SealUpload{Job: waiting, Sum: sum})...)
	path := backUp(b, m, h)
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(info.Size())/1e6, "MB")
	for b.Loop() {
		cfg := RestoreConfig{
			File: path, DataDir: b.TempDir(), Server: "n7", Address: "127.0.0.1:1", Kind: logstore.Bolt, Logger: slog.New(slog.DiscardHandler),
		}
		if _, err := Restore(b.Context(), cfg, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
