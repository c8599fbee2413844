package fsm

import "sort"

// EventKind is what happened.
type EventKind uint8

// The kinds of events. Starts and completions of single tasks have no event: a watch of their
// job has them, and at full speed they would fill a ring within a second.
const (
	JobSubmittedEvent EventKind = iota + 1
	JobEndedEvent               // Event.Job's State is JobState
	JobRevivedEvent             // it continues after it had ended or stopped
	TaskRetryEvent              // an attempt failed; another one follows
	TaskRequeuedEvent           // an attempt was lost with its worker; another one follows
	TaskFailedEvent             // the task ended as failed, dead or lost: TaskState
	WorkerUpEvent               // a process registered
	WorkerDownEvent
	WorkerDrainEvent
	WorkerUndrainEvent
	WorkerForgottenEvent
	LeaderEvent // a term began: Number; Name is the leader
	LevelEvent  // the feature level was set: Number
)

// Event is something that the entry at a log index did. Every replica that applied the
// entry has the same event.
type Event struct {
	Index, Number uint64
	AtMS          int64 // time of the entry, Unix milliseconds
	Job           JobID // of events of jobs and tasks
	// Name is that of the job, worker or leader, Namespace that of the job (empty: the
	// default one), and Task the ID of the task.
	Name, Namespace, Task string
	Attempt               uint32
	Worker                WorkerID // of events of workers, and that of the attempt
	Kind                  EventKind
	JobState              JobState
	TaskState             TaskState
}

const (
	// maxEvents is how many events a replica keeps.
	maxEvents = 100_000
	// eventBlock is how many are allocated at once: a replica without events has none, and
	// the ring grows without copying.
	eventBlock = 1_000
)

// eventRing has the last events of a machine, in memory only. Restored snapshots empty it.
type eventRing struct {
	blocks [maxEvents / eventBlock]*[eventBlock]Event
	n      uint64 // events so far, of which the last maxEvents are kept
	floor  uint64 // events up to this log index are not all kept
}

func (r *eventRing) at(i uint64) *Event {
	i %= maxEvents
	return &r.blocks[i/eventBlock][i%eventBlock]
}

func (r *eventRing) add(e Event) {
	i := r.n % maxEvents
	if r.blocks[i/eventBlock] == nil {
		r.blocks[i/eventBlock] = new([eventBlock]Event)
	}
	if r.n >= maxEvents {
		r.floor = r.at(i).Index
	}
	*r.at(i) = e
	r.n++
}

// reset empties the ring: the state is that of a snapshot at an index.
func (r *eventRing) reset(index uint64) { *r = eventRing{floor: index} }

// after returns events of entries after an index, in order: at most most of them, at least
// one, and those of the same entry as the last one. more reports that there are others.
func (r *eventRing) after(index uint64, most int) (list []Event, more bool) {
	first := r.n - min(r.n, maxEvents)
	kept := int(r.n - first)                                    //nolint:gosec // ≤ maxEvents
	at := func(k int) *Event { return r.at(first + uint64(k)) } //nolint:gosec // an index
	for k := sort.Search(kept, func(k int) bool { return at(k).Index > index }); k < kept; k++ {
		if e := at(k); len(list) >= max(most, 1) && e.Index != list[len(list)-1].Index {
			return list, true
		}
		list = append(list, *at(k))
	}
	return list, false
}

// EventPage is some events, the oldest first.
type EventPage struct {
	Events []Event
	// Index is a log index up to which Events has all events that were asked for.
	Index uint64
	// Floor is the log index up to which the replica may lack events: it has all that
	// happened later.
	Floor uint64
}

// EventsAfter returns events of entries after a log index, at most most of them and those
// of the same entry as the last one. It has no events if the index is below the floor; the
// caller must check that.
func (m *Machine) EventsAfter(index uint64, most int) EventPage {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p := EventPage{Index: index, Floor: m.events.floor}
	if index < p.Floor {
		return p
	}
	var more bool
	if p.Events, more = m.events.after(index, most); more {
		p.Index = p.Events[len(p.Events)-1].Index
	} else {
		p.Index = max(index, m.index)
	}
	return p
}

// event keeps an event of the entry that is being applied. States without a machine, such
// as the leader's speculative ones, keep none.
func (s *State) event(e Event) {
	if s.own.events == nil {
		return
	}
	e.Index, e.AtMS = s.own.at, s.now
	s.own.events.add(e)
}

// jobEvent keeps an event of a job.
func (s *State) jobEvent(kind EventKind, j *job) {
	if s.own.events != nil {
		s.event(Event{Kind: kind, Job: j.id, Name: j.header.GetName(), Namespace: j.header.GetNamespace(), JobState: j.state})
	}
}

// taskEvent keeps an event of a task and its last attempt.
func (s *State) taskEvent(kind EventKind, j *job, i uint32) {
	if s.own.events != nil {
		r := j.records.at(i)
		s.event(Event{
			Kind: kind, Job: j.id, Name: j.header.GetName(), Namespace: j.header.GetNamespace(), Task: j.name(i),
			Attempt: r.attempt, Worker: r.worker, TaskState: r.state,
		})
	}
}

// workerEvent keeps an event of a worker.
func (s *State) workerEvent(kind EventKind, w *Worker) {
	s.event(Event{Kind: kind, Worker: w.ID, Name: w.Name})
}
