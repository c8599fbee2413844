package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/nearest"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// limits implements LimitService.
type limits struct {
	dtaskv1.UnimplementedLimitServiceServer
	*Server
}

const (
	// maxHolders bounds the names of tasks of one counter.
	maxHolders = 100
	// maxCounterBytes bounds the counters of one message: clients take up to 4 MiB. Those that
	// follow maxPageBytes have no holders.
	maxCounterBytes = 2 << 20
)

// SetLimit implements LimitService.
func (s *limits) SetLimit(ctx context.Context, r *dtaskv1.SetLimitRequest) (*dtaskv1.SetLimitResponse, error) {
	if err := spec.CheckLimit(r.GetName(), r.GetSettings()); err != nil {
		return nil, err
	}
	leader, err := s.leader()
	if err != nil {
		return nil, err
	}
	l, err := leader.SetLimit(ctx, r.GetName(), limitSettings(r.GetSettings()), r.GetIfVersion(), caller(ctx).Name)
	if err != nil {
		return nil, s.explainLimit(err, r.GetName(), r.GetIfVersion())
	}
	return &dtaskv1.SetLimitResponse{Limit: showLimit(l)}, nil
}

// ListLimits implements LimitService.
func (s *limits) ListLimits(ctx context.Context, r *dtaskv1.ListLimitsRequest) (*dtaskv1.ListLimitsResponse, error) {
	st, index := s.cfg.Machine.Fork()
	resp := &dtaskv1.ListLimitsResponse{Freshness: s.freshness(index)}
	byName := make(map[string]*dtaskv1.Limit)
	for l := range st.NamedLimits() {
		if name := r.GetName(); name == "" || name == l.Name {
			byName[l.Name] = showLimit(l)
			resp.Limits = append(resp.Limits, byName[l.Name])
		}
	}
	if r.GetName() != "" && len(resp.GetLimits()) == 0 {
		return nil, limitNotFound(st, r.GetName())
	}
	leader, err := s.leader()
	if err != nil {
		return resp, nil //nolint:nilerr // a follower knows the values only
	}
	loads, err := leader.LimitLoads(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	for i := range loads {
		if l := byName[fsm.LimitOf(loads[i].Name)]; l != nil {
			l.Held, l.Waiting = l.GetHeld()+uint64(loads[i].Held), l.GetWaiting()+uint64(loads[i].Waiting) //nolint:gosec // not negative
		}
	}
	if l := byName[r.GetName()]; l != nil {
		l.Counters = limitCounters(st, caller(ctx), l.GetName(), loads)
	}
	return resp, nil
}

// limitCounters returns the counters of a limit, by name. Of as many as one message can't have, they
// are those with the most tasks.
func limitCounters(st *fsm.State, p *auth.Principal, name string, loads []sequencer.LimitLoad) (list []*dtaskv1.LimitCounter) {
	tasks := func(x *sequencer.LimitLoad) int { return int(x.Held) + x.Waiting }
	slices.SortStableFunc(loads, func(a, b sequencer.LimitLoad) int { return cmp.Compare(tasks(&b), tasks(&a)) })
	size := 0
	for i := range loads {
		x := &loads[i]
		if size > maxCounterBytes || tasks(x) == 0 {
			break
		}
		if fsm.LimitOf(x.Name) != name {
			continue
		}
		c := &dtaskv1.LimitCounter{Use: x.Name, Held: uint64(x.Held), Waiting: uint64(x.Waiting), Tokens: x.Tokens} //nolint:gosec // not negative
		if size <= maxPageBytes {
			c.Holders = namedTasks(st, p, x.Holders, maxHolders)
		}
		list = append(list, c)
		size += proto.Size(c)
	}
	slices.SortFunc(list, func(a, b *dtaskv1.LimitCounter) int { return cmp.Compare(a.GetUse(), b.GetUse()) })
	return list
}

// namedTasks returns the names of the first tasks of a list that a caller may see, as JOB/TASK.
func namedTasks(st *fsm.State, p *auth.Principal, tasks []fsm.TaskRef, most int) (names []string) {
	for _, t := range tasks {
		job, ok := st.Job(t.Job)
		if !ok || !sees(p, job.Header) {
			continue
		}
		if names = append(names, fmt.Sprintf("%d/%s", t.Job, st.Name(t))); len(names) == most {
			break
		}
	}
	return names
}

// DeleteLimit implements LimitService.
func (s *limits) DeleteLimit(ctx context.Context, r *dtaskv1.DeleteLimitRequest) (*dtaskv1.DeleteLimitResponse, error) {
	if r.GetName() == "" {
		return nil, invalid("name: missing; name a limit")
	}
	leader, err := s.leader()
	if err != nil {
		return nil, err
	}
	if err := leader.DeleteLimit(ctx, r.GetName(), r.GetIfVersion()); err != nil {
		if isRejected(err, fsm.WrongState) {
			st, _ := s.cfg.Machine.Fork()
			return nil, usageOf(st, usesLimit(r.GetName())).conflict("limit "+quote(r.GetName())+" is used by", "wait for the end of the jobs")
		}
		return nil, s.explainLimit(err, r.GetName(), r.GetIfVersion())
	}
	return &dtaskv1.DeleteLimitResponse{}, nil
}

// explainLimit explains the rejection of a request about a limit, by the current state.
func (s *limits) explainLimit(err error, name string, version uint32) error {
	st, _ := s.cfg.Machine.Fork()
	l := st.NamedLimit(name)
	switch {
	case isRejected(err, fsm.LimitNotFound):
		return limitNotFound(st, name)
	case isRejected(err, fsm.LimitExceeded):
		return refused("the cluster has too many limits: delete one")
	case isRejected(err, fsm.VersionMismatch) && l == nil:
		return conflict("limit %s does not exist, and the request expects version %d", quote(name), version)
	case isRejected(err, fsm.VersionMismatch):
		return conflict("limit %s has version %d, and the request expects version %d: read the limit again", quote(name), l.Version, version)
	}
	return err
}

// limitNotFound names the limit that was probably meant, or that has the name as a key.
func limitNotFound(st *fsm.State, name string) error {
	if keyed := fsm.LimitOf(name); keyed != name && st.NamedLimit(keyed) != nil {
		return notFound("limit %s not found; it is a key of the limit %s", quote(name), quote(keyed))
	}
	return notFoundNear("limit", name, nearLimit(st, name))
}

// nearLimit returns the name of the limit that was probably meant; empty if none is near.
func nearLimit(st *fsm.State, name string) string {
	return nearest.Name(name, func(yield func(string) bool) {
		for l := range st.NamedLimits() {
			if !yield(l.Name) {
				return
			}
		}
	})
}

// otherLimit suggests what to write instead of the name of an unknown limit.
func otherLimit(st *fsm.State, name string) string {
	return cmp.Or(didYouMean(nearLimit(st, name)), "dtaskctl limit list shows the limits")
}

// checkUses refuses a job with a task that uses an unknown limit, or one that replicas of an
// earlier version don't know.
func (s *Server) checkUses(h *dtaskv1.JobHeader) error {
	if !slices.ContainsFunc(h.GetPolicies(), func(p *dtaskv1.TaskPolicy) bool { return len(p.GetUses()) > 0 }) {
		return nil
	}
	var level fsm.Level
	var faults spec.Faults
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		level, faults = st.Level(), unknownLimits(st, h)
	})
	if needed := fsm.OpLevel(&fsm.SetLimit{}); level < needed {
		return refused("uses: the cluster is at feature level %d, and limits require %d: finish the upgrade (dtaskctl cluster upgrade finish)", level, needed)
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// unknownLimits returns a fault for each use of an unknown limit.
func unknownLimits(st *fsm.State, h *dtaskv1.JobHeader) (faults spec.Faults) {
	seen := make(map[string]bool)
	for _, p := range h.GetPolicies() {
		for _, use := range p.GetUses() {
			name := fsm.LimitOf(use)
			if st.NamedLimit(name) != nil || seen[use] {
				continue
			}
			seen[use] = true
			what := "unknown limit " + quote(name)
			if name != use {
				what += ", which " + quote(use) + " needs"
			}
			faults = append(faults, spec.Fault{Where: "uses", What: what, Do: otherLimit(st, name)})
		}
	}
	return faults
}

func showLimit(l *fsm.NamedLimit) *dtaskv1.Limit {
	return &dtaskv1.Limit{Name: l.Name, Version: l.Version, Settings: showLimitSettings(&l.LimitSettings), SetBy: l.By, CreatedAt: l.CreatedMS, ChangedAt: l.ChangedMS}
}

func showLimitSettings(l *fsm.LimitSettings) *dtaskv1.LimitSettings {
	return &dtaskv1.LimitSettings{Running: l.Running, Rate: l.Rate, PeriodMs: l.PeriodMS, Burst: l.Burst}
}

func limitSettings(l *dtaskv1.LimitSettings) fsm.LimitSettings {
	s := fsm.LimitSettings{Running: l.GetRunning(), Rate: l.GetRate(), PeriodMS: l.GetPeriodMs(), Burst: l.GetBurst()}
	if s.Rate > 0 {
		s.Burst = max(s.Burst, 1)
	}
	return s
}

// limitLeader has the methods of a Leader for limits.
type limitLeader interface {
	// SetLimit returns a limit when it is set. A repeated request changes nothing. It
	// returns a *sequencer.RejectedError with VersionMismatch or LimitExceeded.
	SetLimit(ctx context.Context, name string, to fsm.LimitSettings, version uint32, by string) (*fsm.NamedLimit, error)
	// DeleteLimit returns when a limit is removed. It returns a *sequencer.RejectedError
	// with LimitNotFound, VersionMismatch, or WrongState while jobs or schedules use it.
	DeleteLimit(ctx context.Context, name string, version uint32) error
	// LimitLoads returns what counts towards limits, and waits; with the holders of one.
	// The caller owns the list.
	LimitLoads(ctx context.Context, holdersOf string) ([]sequencer.LimitLoad, error)
}
