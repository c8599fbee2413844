package api

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A large job of history has a summary: what its status shows, beside the head of its
// record. To read a million tasks takes longer than a user should wait for a status.
// Requests for anything else, and jobs without a summary, are answered from the whole
// record, by forkJob.

const (
	// summaryFormat is the first byte of a summary. A summary is not updated when a later
	// version shows more of a task or an array that has ended, or shows it otherwise: the
	// version must raise the format then. It ignores other formats, and reads the whole job.
	summaryFormat = 1
	// maxSummaryTasks is how many tasks a summary has: as many as dtaskctl status shows.
	maxSummaryTasks = 100
	// minSummarized is the approximate size of the smallest job with a summary, in bytes.
	// Smaller ones are read within 2 ms.
	minSummarized = 256 << 10
)

// Summarize returns the summary of a job that leaves the state; nothing if the job is
// small. It is history.Config.Summarize. Of a job with arrays, the tasks are those of a
// brief listing.
func Summarize(a *fsm.ArchivedJob) []byte {
	if a.Cost() < minSummarized {
		return nil
	}
	return encodeSummary(a)
}

// encodeSummary returns the summary of a job of any size.
func encodeSummary(a *fsm.ArchivedJob) []byte {
	st := fsm.New()
	st.Adopt(a)
	tasks := &taskReader{st: st, job: a.Job()}
	page, err := tasks.summarize()
	if err != nil {
		return nil // the job is read as a whole
	}
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{summaryFormat}, page)
	if err != nil {
		return nil
	}
	return b
}

// summarize returns the most urgent tasks, and what jobOf adds to the head of a job.
func (r *taskReader) summarize() (*dtaskv1.ListTasksResponse, error) {
	filter, err := newTaskFilter(r, &dtaskv1.ListTasksRequest{Brief: true})
	if err != nil {
		return nil, err
	}
	urgent, selected, err := filter.mostUrgent(context.Background(), 0, r.job.Total, maxSummaryTasks)
	if err != nil {
		return nil, err
	}
	page := &dtaskv1.ListTasksResponse{
		Selected: selected, Tasks: make([]*dtaskv1.Task, len(urgent)),
		Job: &dtaskv1.Job{Levels: r.st.LevelCounts(r.job.ID), Arrays: r.arrays()},
	}
	for at, i := range urgent {
		page.Tasks[at] = r.read(i)
	}
	return page, nil
}

// A jobSummary is a job of history with its summary.
type jobSummary struct {
	head  fsm.Head
	index uint64 // of the state, which no longer had the job
	page  *dtaskv1.ListTasksResponse
}

// summary returns the summary of a job; ok is false if the job has none, is in the state,
// or is unknown.
func (s *Server) summary(id fsm.JobID) (m jobSummary, ok bool, err error) {
	if s.cfg.History == nil {
		return m, false, nil
	}
	left := false
	s.cfg.Machine.Read(func(st *fsm.State, index uint64) {
		_, _, inState := st.Progress(id)
		m.index, left = index, !inState && id < st.NextJob()
	})
	if !left {
		return m, false, nil
	}
	head, b, err := s.cfg.History.Summary(id)
	if err != nil {
		return m, false, s.historyFailed(err)
	}
	m.head, m.page = head, new(dtaskv1.ListTasksResponse)
	return m, len(b) > 0 && b[0] == summaryFormat && proto.Unmarshal(b[1:], m.page) == nil, nil
}

// summarized shows a job as jobOf does.
func (s *Server) summarized(m *jobSummary) *dtaskv1.Job {
	v := archivedView(&m.head, m.index)
	return s.showWhole(&v, m.page.GetJob().GetLevels(), m.page.GetJob().GetArrays())
}

// listSummary answers a request from a summary; found is false if it is missing, or the
// request asks for more.
func (s *Server) listSummary(r *dtaskv1.ListTasksRequest, stream grpc.ServerStreamingServer[dtaskv1.ListTasksResponse]) (found bool, err error) {
	if !mayUseSummary(r) {
		return false, nil
	}
	id, err := jobID(r.GetJob())
	if err != nil {
		return false, err
	}
	m, ok, err := s.summary(id)
	if err != nil || !ok || !m.answers(r) {
		return false, err
	}
	var job *dtaskv1.Job
	if r.GetWithJob() {
		job = s.summarized(&m)
	}
	page := s.firstPage(stream, m.index, job)
	page.selected = m.page.GetSelected()
	for _, t := range m.page.GetTasks()[:min(len(m.page.GetTasks()), int(r.GetMostUrgent()))] {
		if err := page.add(t); err != nil {
			return false, err
		}
	}
	return true, page.send(page.tasks)
}

// mayUseSummary reports whether a request asks for the most urgent tasks of a whole job
// and for nothing that summaries leave out.
func mayUseSummary(r *dtaskv1.ListTasksRequest) bool {
	return r.GetMostUrgent() > 0 && r.GetMostUrgent() <= maxPageTasks && r.GetTask() == "" && len(r.GetStates()) == 0 &&
		!r.GetWithDependencies() && !r.GetWithResults() && !r.GetWithHistory()
}

// answers reports whether the summary has the tasks that a request asks for.
func (m *jobSummary) answers(r *dtaskv1.ListTasksRequest) bool {
	n := uint32(len(m.page.GetTasks())) //nolint:gosec // ≤ maxSummaryTasks
	return (r.GetBrief() || len(m.page.GetJob().GetArrays()) == 0) && (r.GetMostUrgent() <= n || n == m.page.GetSelected())
}
