package history

import (
	"context"
	"sync"
	"testing"

	"github.com/dtask/dtask/fsm"
)

// interrupted is a replica that does something after it has sent the first part of a job.
type interrupted struct {
	*replica

	once func()
}

// Fetch implements Source.
func (s interrupted) Fetch(ctx context.Context, after Position, to uint64, take func(c Chunk, complete bool) error) (bool, error) {
	return s.Serve(ctx, after, to, func(c Chunk, complete bool) error {
		err := take(c, complete)
		if c.Number == 1 {
			s.once()
		}
		return err
	})
}

// The head of a job that expires while it is sent would be one without its parts, and its parts
// must not count for the next job.
func TestAJobThatExpiresWhileItIsSentIsLeftOut(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	archive := func(tasks int) {
		l.do(&fsm.Archive{Items: []fsm.JobID{l.submit(shape{name: "n", tasks: tasks, body: 500, state: fsm.JobCompleted})}})
	}
	archive(600) // several parts
	archive(1)
	first := l.replica(Config{MaxJobs: 2}).apply().sync()
	snapshot := first.snapshot()
	source := interrupted{first, sync.OnceFunc(func() {
		archive(1)
		first.apply().sync()
	})}
	joined := l.replica(Config{Sources: func(context.Context) ([]Source, bool) { return []Source{source}, true }}).restore(snapshot)
	until(t, "the history is complete", func() bool { return !joined.Incomplete() })
	for id, want := range map[fsm.JobID]bool{1: false, 2: true} {
		if _, ok, err := joined.Find(id); ok != want || err != nil {
			t.Errorf("job %d: %t, %v", id, ok, err)
		}
	}
	joined.wantSound(1)
}
