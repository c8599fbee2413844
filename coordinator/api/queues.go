package api

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/nearest"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// queues implements QueueService.
type queues struct {
	dtaskv1.UnimplementedQueueServiceServer
	*Server
}

var errNoQueue = invalid("name: missing; name a queue")

// SetQueue implements QueueService.
func (s *queues) SetQueue(ctx context.Context, r *dtaskv1.SetQueueRequest) (*dtaskv1.SetQueueResponse, error) {
	if err := spec.CheckQueue(r.GetName(), r.GetSettings()); err != nil {
		return nil, err
	}
	leader, err := s.leader()
	if err != nil {
		return nil, err
	}
	q, err := leader.SetQueue(ctx, r.GetName(), storedQueue(r.GetSettings()), r.GetIfVersion(), caller(ctx).Name)
	if err != nil {
		return nil, s.explainQueue(err, r.GetName(), r.GetIfVersion())
	}
	return &dtaskv1.SetQueueResponse{Queue: showQueue(q)}, nil
}

// storedQueue returns checked settings in the form in which they are stored.
func storedQueue(q *dtaskv1.QueueSettings) fsm.QueueSettings {
	s := fsm.QueueSettings{Weight: max(q.GetWeight(), 1), MaxRunning: q.GetMaxRunning(), Rate: q.GetSubmitRate(), PeriodMS: q.GetSubmitPeriodMs(), Burst: q.GetSubmitBurst()}
	if s.Rate > 0 {
		s.Burst = max(s.Burst, 1)
	}
	for _, name := range slices.Sorted(maps.Keys(q.GetMax())) {
		s.Max = append(s.Max, fsm.Resource{Name: name, Amount: q.GetMax()[name]})
	}
	for _, key := range slices.Sorted(maps.Keys(q.GetRequire())) {
		s.Require = append(s.Require, fsm.Label{Key: key, Value: q.GetRequire()[key]})
	}
	return s
}

// ListQueues implements QueueService.
func (s *queues) ListQueues(ctx context.Context, r *dtaskv1.ListQueuesRequest) (*dtaskv1.ListQueuesResponse, error) {
	st, index := s.cfg.Machine.Fork()
	resp := &dtaskv1.ListQueuesResponse{Freshness: s.freshness(index), Queues: allQueues(st)}
	if name := r.GetName(); name != "" {
		resp.Queues = slices.DeleteFunc(resp.GetQueues(), func(q *dtaskv1.Queue) bool { return q.GetName() != name })
		if len(resp.GetQueues()) == 0 {
			return nil, queueNotFound(st, name)
		}
	}
	leader, err := s.leader()
	if err != nil {
		return resp, nil //nolint:nilerr // a follower knows the settings only
	}
	loads, err := leader.QueueLoads(ctx)
	if err != nil {
		return nil, err
	}
	addLoads(resp.GetQueues(), loads)
	return resp, nil
}

// allQueues returns the queues of a state by name. The default one is among them, also if it
// is not set.
func allQueues(st *fsm.State) []*dtaskv1.Queue {
	var list []*dtaskv1.Queue
	for q := range st.Queues() {
		list = append(list, showQueue(q))
	}
	if st.Queue(fsm.DefaultQueue) == nil {
		at, _ := slices.BinarySearchFunc(list, fsm.DefaultQueue, func(q *dtaskv1.Queue, name string) int { return cmp.Compare(q.GetName(), name) })
		list = slices.Insert(list, at, &dtaskv1.Queue{Name: fsm.DefaultQueue, Settings: &dtaskv1.QueueSettings{Weight: 1}})
	}
	return list
}

// addLoads adds what waits and runs in queues.
func addLoads(list []*dtaskv1.Queue, loads map[string]sequencer.QueueLoad) {
	for _, q := range list {
		l := loads[q.GetName()]
		q.Waiting, q.Running = uint64(l.Waiting), uint64(l.Running) //nolint:gosec // not negative
		q.OldestWaitUs, q.WaitP50Us, q.WaitP99Us = l.Oldest.Microseconds(), l.P50.Microseconds(), l.P99.Microseconds()
	}
}

// PauseQueue implements QueueService.
func (s *queues) PauseQueue(ctx context.Context, r *dtaskv1.PauseQueueRequest) (*dtaskv1.PauseQueueResponse, error) {
	if r.GetName() == "" {
		return nil, errNoQueue
	}
	leader, err := s.leader()
	if err != nil {
		return nil, err
	}
	q, already, err := leader.PauseQueue(ctx, r.GetName(), r.GetReason(), caller(ctx).Name)
	if err != nil {
		return nil, s.explainQueue(err, r.GetName(), 0)
	}
	return &dtaskv1.PauseQueueResponse{Queue: showQueue(q), Already: already}, nil
}

// ResumeQueue implements QueueService.
func (s *queues) ResumeQueue(ctx context.Context, r *dtaskv1.ResumeQueueRequest) (*dtaskv1.ResumeQueueResponse, error) {
	if r.GetName() == "" {
		return nil, errNoQueue
	}
	leader, err := s.leader()
	if err != nil {
		return nil, err
	}
	q, already, err := leader.ResumeQueue(ctx, r.GetName(), caller(ctx).Name)
	if err != nil {
		return nil, s.explainQueue(err, r.GetName(), 0)
	}
	return &dtaskv1.ResumeQueueResponse{Queue: showQueue(q), Already: already}, nil
}

// DeleteQueue implements QueueService.
func (s *queues) DeleteQueue(ctx context.Context, r *dtaskv1.DeleteQueueRequest) (*dtaskv1.DeleteQueueResponse, error) {
	if r.GetName() == "" {
		return nil, errNoQueue
	}
	leader, err := s.leader()
	if err != nil {
		return nil, err
	}
	if err := leader.DeleteQueue(ctx, r.GetName(), r.GetIfVersion()); err != nil {
		if isRejected(err, fsm.WrongState) {
			st, _ := s.cfg.Machine.Fork()
			return nil, usageOf(st, usesQueue(r.GetName())).conflict("queue "+quote(r.GetName())+" is named by", "move the jobs, or wait for their end")
		}
		return nil, s.explainQueue(err, r.GetName(), r.GetIfVersion())
	}
	return &dtaskv1.DeleteQueueResponse{}, nil
}

// explainQueue explains the rejection of a request about a queue, by the current state.
func (s *queues) explainQueue(err error, name string, version uint32) error {
	st, _ := s.cfg.Machine.Fork()
	q := st.Queue(name)
	switch {
	case isRejected(err, fsm.QueueNotFound):
		return queueNotFound(st, name)
	case isRejected(err, fsm.LimitExceeded):
		return refused("the cluster has too many queues: delete one")
	case isRejected(err, fsm.VersionMismatch) && q == nil:
		return conflict("queue %s does not exist, and the request expects version %d", quote(name), version)
	case isRejected(err, fsm.VersionMismatch):
		return conflict("queue %s has version %d, and the request expects version %d: read the queue again", quote(name), q.Version, version)
	}
	return err
}

// queueNotFound names the queue that was probably meant.
func queueNotFound(st *fsm.State, name string) error {
	return notFoundNear("queue", name, nearQueue(st, name))
}

// nearQueue returns the name of the queue that was probably meant; empty if none is near.
func nearQueue(st *fsm.State, name string) string {
	return nearest.Name(name, func(yield func(string) bool) {
		for q := range st.Queues() {
			if !yield(q.Name) {
				return
			}
		}
		yield(fsm.DefaultQueue)
	})
}

// otherQueue suggests what to write instead of the name of an unknown queue.
func otherQueue(st *fsm.State, name string) string {
	return cmp.Or(didYouMean(nearQueue(st, name)), "dtaskctl queue list shows the queues")
}

// checkQueue refuses a job whose queue is unknown, or unknown to replicas of an earlier
// version.
func (s *Server) checkQueue(h *dtaskv1.JobHeader) error {
	name := h.GetQueue()
	if name == "" {
		return nil
	}
	var level fsm.Level
	var fault string
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		level = st.Level()
		if name != fsm.DefaultQueue && st.Queue(name) == nil {
			fault = otherQueue(st, name)
		}
	})
	if needed := fsm.OpLevel(&fsm.SetQueue{}); level < needed {
		return refused("job.queue: the cluster is at feature level %d, and queues require %d: finish the upgrade (dtaskctl cluster upgrade finish)", level, needed)
	}
	if fault != "" {
		return spec.Faults{{Where: "job.queue", What: "unknown queue " + quote(name), Do: fault}}
	}
	return nil
}

// explainDeleted names the queue of a job, or the limit, that was deleted after the job was checked.
func (s *Server) explainDeleted(encoded []byte, rejection error) error {
	h := new(dtaskv1.JobHeader)
	if err := proto.Unmarshal(encoded, h); err != nil {
		return rejection
	}
	if err := s.checkQueue(h); err != nil {
		return err
	}
	if err := s.checkUses(h); err != nil {
		return err
	}
	return rejection
}

func showQueue(q *fsm.Queue) *dtaskv1.Queue {
	s := &dtaskv1.QueueSettings{Weight: q.Weight, MaxRunning: q.MaxRunning, SubmitRate: q.Rate, SubmitPeriodMs: q.PeriodMS, SubmitBurst: q.Burst}
	for _, r := range q.Max {
		if s.Max == nil {
			s.Max = make(map[string]int64, len(q.Max))
		}
		s.Max[r.Name] = r.Amount
	}
	for _, l := range q.Require {
		if s.Require == nil {
			s.Require = make(map[string]string, len(q.Require))
		}
		s.Require[l.Key] = l.Value
	}
	return &dtaskv1.Queue{
		Name: q.Name, Version: q.Version, Settings: s, SetBy: q.By, CreatedAt: q.CreatedMS, ChangedAt: q.ChangedMS,
		PausedAt: q.Pause.AtMS, PausedBy: q.Pause.By, PauseReason: q.Pause.Reason,
	}
}

// move moves a whole job to another queue.
func (j *jobs) move(ctx context.Context, c change, r *dtaskv1.UpdateRequest) (sequencer.ChangeResult, error) {
	s, err := j.selectTasks(ctx, c, nil)
	if err != nil {
		return sequencer.ChangeResult{}, err
	}
	done, err := s.leader.MoveJob(ctx, fsm.MoveJob{Job: s.id, Precondition: s.required, Queue: r.GetQueue()}, s.generated)
	if isRejected(err, fsm.QueueNotFound) {
		st, _ := j.cfg.Machine.Fork()
		return done, queueNotFound(st, r.GetQueue())
	}
	return done, err
}

// movesOnly reports whether an update has no other change than that of the queue.
func movesOnly(r *dtaskv1.UpdateRequest) bool {
	return r.GetTask() == "" && r.GetPriority() == 0 && r.MaxRetries == nil && r.GetTimeoutMs() == 0 && r.Payload == nil && r.NotBefore == nil && r.DelayMs == nil
}
