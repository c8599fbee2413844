package api

import (
	"context"
	"errors"
	"iter"
	"time"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Jobs that have ended leave the replicated state for history. Reads find them
// there: the state is always asked first, since a job goes one way only.

// fetchPause is when a caller should come back who needs what history lacks.
const fetchPause = time.Second

// incompleteHistory is the answer of a replica that may lack what was asked for.
func incompleteHistory() error {
	return &Error{
		Kind: KindBusy, RetryAfter: fetchPause,
		Message: "this replica's history is incomplete: it is being fetched from the others, and this job may be in what is missing",
	}
}

// readingHistory makes an answer of an error of history, which is never the caller's.
func (s *Server) readingHistory(err error) error {
	s.cfg.Logger.Warn("history could not be read", "err", err)
	return incompleteHistory()
}

// missing is the answer for a job that is nowhere.
func (s *Server) missing(id fsm.JobID) error {
	next := fsm.JobID(0)
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) { next = st.NextJob() })
	if s.cfg.History != nil && id < next && s.cfg.History.Incomplete() {
		return incompleteHistory()
	}
	return noSuchJob(id)
}

// fork gives a state that has a job, and its applied index. From history the job is
// adopted: it reads as it did when it left.
func (s *Server) fork(id fsm.JobID) (st *fsm.State, job fsm.Job, index uint64, err error) {
	st, index = s.cfg.Machine.Fork()
	job, ok := st.Job(id)
	if ok {
		return st, job, index, nil
	}
	if s.cfg.History != nil && id < st.NextJob() {
		switch ok, err := s.cfg.History.Adopt(st, id); {
		case err != nil:
			return nil, job, 0, s.readingHistory(err)
		case ok:
			job, _ = st.Job(id)
			return st, job, index, nil
		}
	}
	return nil, job, 0, s.missing(id)
}

// archived gives the head of a job that has left the state.
func (s *Server) archived(id fsm.JobID) (head fsm.Head, ok bool, err error) {
	if s.cfg.History == nil {
		return head, false, nil
	}
	if head, ok, err = s.cfg.History.Find(id); err != nil {
		err = s.readingHistory(err)
	}
	return head, ok, err
}

// unchangeable says why what was asked of a job that the leader does not have any more
// cannot be done; the refusal itself if that is not why.
func (s *Server) unchangeable(id fsm.JobID, refusal error) error {
	rejected, ok := errors.AsType[*sequencer.RejectedError](refusal)
	if !ok || rejected.Reason != fsm.JobNotFound {
		return refusal
	}
	switch head, ok, err := s.archived(id); {
	case err != nil:
		return err
	case ok:
		return inHistory(&head.Job)
	}
	return s.missing(id)
}

func inHistory(job *fsm.Job) error {
	return conflict("job %d has ended as %s and is history: it can be read and not be changed any more", job.ID, job.State)
}

// merged goes over jobs of the state and of history, newest first, each once. The
// state is the fork from before history was asked.
type merged struct {
	live     func() (fsm.Job, bool)
	stopLive func()
	next     fsm.Job
	more     bool
}

func newMerged(jobs iter.Seq[fsm.Job]) *merged {
	m := &merged{}
	m.live, m.stopLive = iter.Pull(jobs)
	m.next, m.more = m.live()
	return m
}

// upTo gives the jobs of the state with numbers of at least id, until yield wants no
// more.
func (m *merged) upTo(id fsm.JobID, yield func(fsm.Job) bool) (more bool) {
	for m.more && m.next.ID >= id {
		if !yield(m.next) {
			return false
		}
		m.next, m.more = m.live()
	}
	return true
}

// listHistory goes over the jobs of history that a filter looks for, and over those of the
// state. It gives where the next page begins; 0 = there is none.
func (j *jobs) listHistory(ctx context.Context, st *fsm.State, f *filter, page *jobPage) (below fsm.JobID, err error) {
	m := newMerged(st.Jobs(f.below))
	defer m.stopLive()
	live := func(job fsm.Job) bool {
		if page.stop(job.ID) {
			return false
		}
		page.scanned++
		if f.match(job) {
			page.live(job)
		}
		return page.err == nil
	}
	if j.cfg.History != nil && f.mayHaveEnded() {
		q := f.query()
		if q.Below == 0 || q.Below > st.NextJob() {
			q.Below = st.NextJob() // what is newer than the fork is not shown
		}
		rest, err := j.cfg.History.List(ctx, q, func(head fsm.Head) bool {
			if !m.upTo(head.ID, live) {
				return false
			}
			if _, there := st.Job(head.ID); there {
				return true
			}
			if page.stop(head.ID) {
				return false
			}
			page.add(show(sight{job: head.Job}, head.Aggregated))
			return true
		})
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case err != nil:
			return 0, j.readingHistory(err)
		case page.next > 0 || page.err != nil:
			return page.next, page.err
		case rest > 0:
			m.upTo(rest, live)
			if page.next > 0 || page.err != nil {
				return page.next, page.err
			}
			return rest, nil
		}
	}
	m.upTo(0, live)
	return page.next, page.err
}

// History implements AdminService.
func (c *admin) History(r *dtaskv1.HistoryRequest, stream grpc.ServerStreamingServer[dtaskv1.HistoryResponse]) error {
	if c.cfg.History == nil {
		return &Error{Kind: KindBusy, RetryAfter: fetchPause, Message: "this replica has no history yet"}
	}
	ctx, end := c.untilStopping(stream.Context())
	defer end()
	resp, size := &dtaskv1.HistoryResponse{}, 0
	after := history.Position{Index: r.GetAfterIndex(), Job: fsm.JobID(r.GetAfterJob())}
	complete, err := c.cfg.History.Serve(ctx, after, r.GetToIndex(), func(p history.Chunk, complete bool) error {
		resp.Complete = complete
		resp.Chunks = append(resp.Chunks, &dtaskv1.HistoryChunk{Index: p.Index, Job: uint64(p.Job), Number: p.Number, Total: p.Total, Data: p.Data})
		if size += len(p.Data); size < maxPage {
			return nil
		}
		err := stream.Send(resp)
		resp, size = &dtaskv1.HistoryResponse{}, 0
		return err
	})
	if err != nil {
		return err
	}
	resp.Complete = complete
	if len(resp.GetChunks()) > 0 {
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
	return stream.Send(&dtaskv1.HistoryResponse{Complete: complete})
}
