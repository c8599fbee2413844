package fsm

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// workers has the workers, and for each of them the number of its live
// attempts. Thousands of workers can be forgotten at once, with a rack or a
// network, and a scan of all live attempts for each would take too long. The
// numbers follow from the records. They are therefore neither in snapshots
// nor in the digest.
type workers struct {
	own     *ownership
	list    []*Worker // ascending by number
	heldOwn *ownership
	held    []int32 // live attempts of each worker of list
	names   cowMap[WorkerID]
	next    WorkerID // the number of the next new name
}

// TypeLabel is the key of the labels that name the types of tasks that a worker
// handles, one for each. A worker without any is of an earlier version, and
// handles all types.
const TypeLabel = "dtask.type"

// SecretLabel is the key of the labels that name the secrets of a worker, one for each.
// The cluster knows only their names.
const SecretLabel = "dtask.secret"

// NamespaceLabel is the key of the labels that name the namespaces whose tasks a worker
// may run, one for each. A worker without any serves all namespaces.
const NamespaceLabel = "dtask.namespace"

// ReservedLabel is the key of the label of a worker that gets only tasks which require one
// of its labels.
const ReservedLabel = "dtask.reserved"

// IsOwnLabel reports whether labels with this key are the coordinators' own. Workers
// can't set them, and tasks can't require them.
func IsOwnLabel(key string) bool {
	return key == TypeLabel || key == SecretLabel || key == NamespaceLabel || key == ReservedLabel
}

// RequiredType returns the type that a worker must handle to run tasks of this
// policy.
func RequiredType(p *dtaskv1.TaskPolicy) string { return cmp.Or(p.GetType(), taskbody.CommandType) }

// Types returns the types of tasks that the worker handles, sorted as it
// announced them; nil: all.
func (w *Worker) Types() []string { return w.values(TypeLabel) }

// Secrets returns the names of the worker's secrets, sorted.
func (w *Worker) Secrets() []string { return w.values(SecretLabel) }

// Namespaces returns the namespaces that the worker serves, sorted; nil: all.
func (w *Worker) Namespaces() []string { return w.values(NamespaceLabel) }

// IsReserved reports whether the worker gets only tasks that require one of its labels.
func (w *Worker) IsReserved() bool { return w.values(ReservedLabel) != nil }

// values returns the values of all labels with this key; nil if it has none.
func (w *Worker) values(key string) []string {
	var values []string
	for _, l := range w.Labels {
		if l.Key == key {
			values = append(values, l.Value)
		}
	}
	return values
}

// Worker is a worker as the cluster agrees on it. Values never change once
// they are in the state.
type Worker struct {
	ID          WorkerID
	Name        string
	Incarnation string
	State       WorkerState
	Slots       uint32
	Labels      []Label    // sorted by key
	Resources   []Resource // sorted by name
	Version     string
	Address     string
	UpSince     int64 // ms
	DownSince   int64 // ms; 0 while up
	DownReason  string
	// DrainUntil is when the attempts of the worker are ended, in ms; 0 = it
	// does not drain. It outlives the worker's processes.
	DrainUntil  int64
	DrainReason string
}

// SlotsUp returns the number of slots of all workers that are up.
func (t *workers) SlotsUp() (n uint64) {
	for _, w := range t.list {
		if w.State == WorkerUp {
			n += uint64(w.Slots)
		}
	}
	return n
}

// Drains reports whether the operator stopped new assignments to the worker.
func (w *Worker) Drains() bool { return w.DrainUntil != 0 }

// at returns the position of a worker in the list, or the one where it belongs.
func (t *workers) at(id WorkerID) (at int, found bool) {
	if len(t.list) == 0 {
		return 0, false
	}
	// Usually no number between the first and the last is forgotten.
	if first := t.list[0].ID; id >= first && int(id-first) < len(t.list) && t.list[id-first].ID == id {
		return int(id - first), true
	}
	return slices.BinarySearchFunc(t.list, id, func(w *Worker, id WorkerID) int { return cmp.Compare(w.ID, id) })
}

// get returns a worker, or nil if it is unknown.
func (t *workers) get(id WorkerID) *Worker {
	at, found := t.at(id)
	if !found {
		return nil
	}
	return t.list[at]
}

// write returns the list for changing.
func (t *workers) write(own *ownership) []*Worker {
	if t.own != own {
		t.list, t.own = slices.Clone(t.list), own
	}
	return t.list
}

// writeHeld returns the numbers of live attempts for changing.
func (t *workers) writeHeld(own *ownership) []int32 {
	if t.heldOwn != own {
		t.held, t.heldOwn = slices.Clone(t.held), own
	}
	return t.held
}

// release removes a live attempt. Only a damaged record names an unknown
// worker.
func (t *workers) release(own *ownership, id WorkerID) {
	if at, found := t.at(id); found {
		t.writeHeld(own)[at]--
	}
}

// insert adds a worker without live attempts.
func (t *workers) insert(own *ownership, at int, w *Worker) {
	t.list = slices.Insert(t.write(own), at, w)
	t.held = slices.Insert(t.writeHeld(own), at, 0)
}

// remove removes workers that exist. Their numbers ascend.
func (t *workers) remove(own *ownership, ids []WorkerID) {
	list, held, kept := t.write(own), t.writeHeld(own), 0
	for at, w := range list {
		if len(ids) > 0 && w.ID == ids[0] {
			ids = ids[1:]
			continue
		}
		list[kept], held[kept] = w, held[at]
		kept++
	}
	clear(list[kept:])
	t.list, t.held = list[:kept], held[:kept]
}

// Worker returns a worker, or nil if it is unknown. Shared: never change it.
func (t *workers) Worker(id WorkerID) *Worker { return t.get(id) }

// LiveAttempts is the number of live attempts of a worker.
func (t *workers) LiveAttempts(id WorkerID) int {
	at, found := t.at(id)
	if !found {
		return 0
	}
	return int(t.held[at])
}

// WorkerByName returns the worker with a name, or nil if there is no such
// worker.
func (t *workers) WorkerByName(name string) *Worker {
	id, ok := t.names.get(name)
	if !ok {
		return nil
	}
	return t.get(id)
}

// NextWorker is the number of the next new worker name.
func (t *workers) NextWorker() WorkerID { return t.next }

// WorkerCount is how many workers there are, whether up or down.
func (t *workers) WorkerCount() int { return len(t.list) }

// Workers iterates over the workers by number.
func (t *workers) Workers() iter.Seq[*Worker] { return t.WorkersAfter(0) }

// WorkersAfter iterates over the workers with higher numbers.
func (t *workers) WorkersAfter(id WorkerID) iter.Seq[*Worker] {
	at, found := t.at(id)
	if found {
		at++
	}
	return func(yield func(*Worker) bool) {
		for _, w := range t.list[at:] {
			if !yield(w) {
				return
			}
		}
	}
}

// countHeld counts the live attempts of each worker by the records of all jobs.
func (t *workers) countHeld(jobs *jobTable) []int32 {
	held := make([]int32, len(t.list))
	for j := range jobs.all() {
		left := j.counts[Assigned]
		for i := uint32(0); left > 0 && i < j.records.n; i++ {
			r := j.records.at(i)
			if r.state != Assigned {
				continue
			}
			left--
			if at, found := t.at(r.worker); found {
				held[at]++
			}
		}
	}
	return held
}

// check checks the list, the names, and the numbers of live attempts.
func (t *workers) check(jobs *jobTable) error {
	last := WorkerID(0)
	for _, w := range t.list {
		if w.ID <= last || w.ID >= t.next {
			return fmt.Errorf("worker %d follows worker %d, next is %d", w.ID, last, t.next)
		}
		last = w.ID
		if got, ok := t.names.get(w.Name); !ok || got != w.ID {
			return fmt.Errorf("worker %d is not found by its name %q", w.ID, w.Name)
		}
		if w.State != WorkerUp && w.State != WorkerDown {
			return fmt.Errorf("worker %d has invalid state %d", w.ID, w.State)
		}
		if w.DrainUntil < 0 || w.DrainUntil == 0 && w.DrainReason != "" {
			return fmt.Errorf("worker %d drains until %d", w.ID, w.DrainUntil)
		}
	}
	if t.names.n != len(t.list) {
		return fmt.Errorf("%d workers, %d names", len(t.list), t.names.n)
	}
	want := t.countHeld(jobs)
	if len(want) != len(t.held) {
		return fmt.Errorf("%d workers, live attempts of %d", len(want), len(t.held))
	}
	for at, w := range t.list {
		if t.held[at] != want[at] {
			return fmt.Errorf("worker %d holds %d attempts, counted %d", w.ID, want[at], t.held[at])
		}
	}
	return nil
}
