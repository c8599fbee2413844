package sequencer

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// setHourly sets a schedule that fires each hour.
func setHourly(tb testing.TB, b *batch, name string) {
	tb.Helper()
	raw, err := proto.Marshal(&dtaskv1.JobHeader{Name: name, Priority: dtaskv1.Priority_PRIORITY_NORMAL, Policies: []*dtaskv1.TaskPolicy{{Type: "x", TimeoutMs: 60_000}}})
	if err != nil {
		tb.Fatal(err)
	}
	chunk := fsm.NewChunkBuilder(0)
	chunk.Add("a", 0, nil, nil)
	c, id := chunk.Chunk(), b.view.NextJob()
	for _, op := range []fsm.Op{
		&fsm.BeginUpload{ID: id, Key: name, Header: raw, Total: 1},
		&fsm.AddChunk{Job: id, Chunk: c},
		&fsm.SetSchedule{
			Upload: id, Sum: c.Sum(0), Recurrence: fsm.Recurrence{Cron: []string{"0 * * * *"}, Zone: "Europe/Berlin"}, AtMS: b.entry.NowMS(),
			ScheduleRules: fsm.ScheduleRules{Overlap: fsm.OverlapAllow, Missed: fsm.MissedSkip},
		},
	} {
		if r := b.entry.Do(op); r != fsm.Accepted {
			tb.Fatalf("%T: %v", op, r)
		}
	}
}

// BenchmarkBlockedSchedules measures how long 10,000 schedules that are due stop the leader each time
// they are tried again, while jobs are refused: 20 times per second.
func BenchmarkBlockedSchedules(b *testing.B) {
	cfg := testConfig()
	ahead := time.Duration(0)
	cfg.WallClock = func() time.Time { return time.Now().Add(ahead) }
	cfg.CheckSubmit = func() error { return errors.New("the disk is nearly full") }
	s, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	x := s.batches.next(s.view)
	x.entry.Do(&fsm.SetLevel{Level: 3})
	const schedules = 10_000
	for i := range schedules {
		setHourly(b, x, fmt.Sprintf("s%d", i))
	}
	x.entry.Finish()
	ahead = time.Hour
	t, x := &s.schedules, s.batches.next(s.view)
	for def := range s.view.Schedules() {
		t.advance(x, t.of(x, def))
	}
	if len(t.blocked) != schedules {
		b.Fatalf("%d schedules are blocked, want %d", len(t.blocked), schedules)
	}
	for b.Loop() {
		t.retry(x)
	}
}
