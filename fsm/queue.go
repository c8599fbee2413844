package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// DefaultQueue is the queue of jobs that name none. It need not be set.
const DefaultQueue = "default"

// QueueSettings are what an operator sets of a queue. The state machine stores them and
// never evaluates them: the leader's scheduler does.
type QueueSettings struct {
	Weight     uint32     // from 1
	MaxRunning uint32     // attempts at once; 0 = unlimited
	Max        []Resource // the most that attempts may hold, in thousandths; ascending by name
	Require    []Label    // added to those that its tasks require; ascending by key
	Rate       uint32     // jobs that may be submitted in each period; 0 = unlimited
	PeriodMS   uint32     // 0 without a rate
	Burst      uint32     // jobs at once; 0 without a rate
}

func (q *QueueSettings) fields(c *coder) {
	number(c, &q.Weight)
	number(c, &q.MaxRunning)
	c.resources(&q.Max)
	c.labels(&q.Require)
	number(c, &q.Rate)
	number(c, &q.PeriodMS)
	number(c, &q.Burst)
}

func (q *QueueSettings) malformed() bool {
	var e encoder
	q.fields(&coder{e: &e})
	ascending := func(n int, before func(i int) bool) bool {
		for i := 1; i < n; i++ {
			if !before(i) {
				return false
			}
		}
		return true
	}
	return q.Weight == 0 || q.Weight > MaxQueueWeight || malformedRate(q.Rate, q.PeriodMS, q.Burst) || len(e.b) > maxQueueText ||
		slices.ContainsFunc(q.Max, func(r Resource) bool { return r.Name == "" || r.Amount <= 0 }) ||
		slices.ContainsFunc(q.Require, func(l Label) bool { return l.Key == "" }) ||
		!ascending(len(q.Max), func(i int) bool { return q.Max[i-1].Name < q.Max[i].Name }) ||
		!ascending(len(q.Require), func(i int) bool { return q.Require[i-1].Key < q.Require[i].Key })
}

// QueuePause is that nothing of a queue starts. AtMS 0 = it is not paused.
type QueuePause struct {
	AtMS   int64
	By     string // name of the one that asked for it
	Reason string
}

func (p *QueuePause) fields(c *coder) {
	c.i64(&p.AtMS)
	c.str(&p.By)
	c.str(&p.Reason)
}

func (p *QueuePause) malformed() bool {
	return p.AtMS < 0 || len(p.By) > maxIdentityText || tooLong(p.Reason) || p.AtMS == 0 && (p.By != "" || p.Reason != "")
}

// Queue is a queue. Values never change once they are in the state.
type Queue struct {
	Name    string
	Version uint32 // starts at 1; each change adds 1
	QueueSettings
	Pause     QueuePause
	By        string // name of the one that changed it last
	CreatedMS int64
	ChangedMS int64
}

// IsPaused reports whether nothing of the queue starts.
func (q *Queue) IsPaused() bool { return q.Pause.AtMS != 0 }

func (q *Queue) fields(c *coder) {
	c.str(&q.Name)
	number(c, &q.Version)
	q.QueueSettings.fields(c)
	q.Pause.fields(c)
	c.str(&q.By)
	c.i64(&q.CreatedMS)
	c.i64(&q.ChangedMS)
}

func (q *Queue) malformed() bool {
	return !isName(q.Name) || q.Version == 0 || q.QueueSettings.malformed() || q.Pause.malformed() ||
		len(q.By) > maxIdentityText || q.CreatedMS <= 0 || q.ChangedMS <= 0
}

// queues are all queues that were set, ascending by name. The list never changes: it is
// replaced.
type queues struct{ list []*Queue }

func (t *queues) at(name string) (at int, found bool) {
	return slices.BinarySearchFunc(t.list, name, func(q *Queue, name string) int { return cmp.Compare(q.Name, name) })
}

// Queue returns a queue that was set, or nil. Shared: never change it.
func (t *queues) Queue(name string) *Queue {
	if at, found := t.at(name); found {
		return t.list[at]
	}
	return nil
}

// Queues iterates over the queues that were set by name.
func (t *queues) Queues() iter.Seq[*Queue] { return slices.Values(t.list) }

// hasQueue reports whether a job may name a queue.
func (t *queues) hasQueue(name string) bool {
	return name == "" || name == DefaultQueue || t.Queue(name) != nil
}

// queueLevel is the level from which on jobs name queues that exist. Builds of lower ones
// know no queues, and must decide alike.
const queueLevel Level = 3

// QueueOf returns the name of a job's queue.
func QueueOf(h *dtaskv1.JobHeader) string { return cmp.Or(h.GetQueue(), DefaultQueue) }

// queueInUse reports whether a job that has not ended, or a schedule, names a queue.
func (s *State) queueInUse(name string) bool {
	for j := range s.jobs.all() {
		if j.state != JobUploading && !j.state.Terminal() && QueueOf(j.header) == name {
			return true
		}
	}
	return slices.ContainsFunc(s.schedules.list, func(x *Schedule) bool { return QueueOf(x.Header()) == name })
}

func (d *digester) mixQueue(q *Queue) {
	if q == nil {
		return
	}
	var e encoder
	q.fields(&coder{e: &e})
	d.mixBytes(e.b)
}

// put adds a queue or replaces the one of its name.
func (t *queues) put(q *Queue) {
	at, found := t.at(q.Name)
	list := slices.Clone(t.list)
	if found {
		list[at] = q
	} else {
		list = slices.Insert(list, at, q)
	}
	t.list = list
}

// withQueue returns an encoded header in which the queue is replaced. Of a field that
// occurs again, the last one counts.
func withQueue(encoded []byte, name string) (header, error) {
	const queue = 15
	rest, kept := encoded, make([]byte, 0, len(encoded)+len(name)+4)
	for len(rest) > 0 {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return header{}, protowire.ParseError(n)
		}
		if number != queue {
			kept = append(kept, rest[:n]...)
		}
		rest = rest[n:]
	}
	if name != DefaultQueue {
		kept = protowire.AppendString(protowire.AppendTag(kept, queue, protowire.BytesType), name)
	}
	h := header{encoded: kept, decoded: new(dtaskv1.JobHeader)}
	if err := proto.Unmarshal(kept, h.decoded); err != nil {
		return header{}, fmt.Errorf("decoding header: %w", err)
	}
	return h, nil
}

// queues writes the frames of the queues. A cluster that never had one has none, so that the
// form of its snapshots is that of builds without queues.
func (f *frameWriter) queues(s *State) {
	for part := range slices.Chunk(s.queues.list, queuesPerFrame) {
		list(&f.c, &part, func(q **Queue) { (*q).fields(&f.c) })
		f.frame(frameQueues)
	}
}

// queuesPerFrame keeps a frame far below the maximum.
const queuesPerFrame = 256

// queues reads one of these frames.
func (f *frameReader) queues(d *decoder) {
	c := coder{d: d}
	for range d.count() {
		q := new(Queue)
		if q.fields(&c); d.err != nil {
			return
		}
		f.s.queues.list = append(f.s.queues.list, q)
	}
}

// check checks the queues.
func (t *queues) check() error {
	if len(t.list) > maxQueues {
		return errors.New("too many queues")
	}
	for i, q := range t.list {
		switch {
		case q.malformed():
			return fmt.Errorf("queue %q is malformed", q.Name)
		case i > 0 && t.list[i-1].Name >= q.Name:
			return fmt.Errorf("queue %q follows queue %q", q.Name, t.list[i-1].Name)
		}
	}
	return nil
}
