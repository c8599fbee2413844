package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// A Plan is a job that a client intended to submit.
type Plan struct {
	Key   string        `json:"key"`  // idempotency key
	Body  string        `json:"body"` // digest of what is submitted
	Name  string        `json:"name"` // of the job; unique among plans
	Shape string        `json:"shape"`
	Tasks []PlannedTask `json:"tasks"`
	Uses  []string      `json:"uses,omitempty"` // limits of all its tasks
	// Holders is how many may hold each of its limits at a time; 0 = one.
	Holders int `json:"holders,omitempty"`
	// Rate is that of its limits, which then have no number.
	Rate *Rate `json:"rate,omitempty"`
	Gate *Gate `json:"gate,omitempty"`
	// Meter is the queue of its tasks, if that has had one quota on a resource during the
	// whole run, and Quota the quota.
	Meter string  `json:"meter,omitempty"`
	Quota float64 `json:"quota,omitempty"`
	// Pool is what its queue requires of workers.
	Pool Rules `json:"pool,omitempty"`
	// Every makes it the plan of each run of a schedule with its name: without a key, and
	// not unique.
	Every time.Duration `json:"every,omitempty"`
}

// A Gate is what keeps the tasks of a job from starting. Its fields are optional.
type Gate struct {
	After   time.Duration `json:"after,omitempty"`   // after its submission
	Expires time.Duration `json:"expires,omitempty"` // it is cancelled then, if no task has started
	Key     string        `json:"key,omitempty"`     // concurrency key with a limit of 1
	Overlap string        `json:"overlap,omitempty"` // rule of the key
}

// A PlannedTask is one task of a Plan. Every task writes to the ledger.
type PlannedTask struct {
	ID      string   `json:"id"`
	After   []string `json:"after,omitempty"` // earlier tasks of the plan
	Fails   int      `json:"fails,omitempty"` // number of attempts that fail on purpose
	Retries int      `json:"retries"`         // maximum retries
	Once    bool     `json:"once,omitempty"`  // at most once
	// Takes is how much it takes of the resource of its queue's quota, at least.
	Takes   float64 `json:"takes,omitempty"`
	Require Rules   `json:"require,omitempty"` // of workers, beside its queue
	GPUs    float64 `json:"gpus,omitempty"`    // of its worker
}

// A Final is a job as the healed cluster shows it at the end.
type Final struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	State     string      `json:"state"`
	Completed int         `json:"completed"` // tasks_completed
	Tasks     []FinalTask `json:"tasks"`
	Run       *TickRun    `json:"run,omitempty"` // unset: a client submitted it
}

// A TickRun is what a job knows of the schedule that started it.
type TickRun struct {
	ID uint64 `json:"id"` // of the schedule: another one after the schedule was deleted
	At int64  `json:"at"` // the tick, in ms
}

// A FinalTask is a task of a Final.
type FinalTask struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Attempt int    `json:"attempt"`
	Worker  string `json:"worker,omitempty"`
	Error   string `json:"error,omitempty"` // of the last failure, or why it was cancelled
	// Preempted is how many of its attempts ended for urgent tasks, according to its history.
	Preempted int `json:"preempted,omitempty"`
}

func (t FinalTask) completed() bool { return t.State == "completed" || t.State == "aggregated" }

func (t FinalTask) terminal() bool {
	switch t.State {
	case "failed", "cancelled", "dead", "lost":
		return true
	}
	return t.completed()
}

// Kind names a broken promise.
type Kind string

// The broken promises.
const (
	Lost       Kind = "lost"       // acknowledged, and missing or not done
	Duplicated Kind = "duplicated" // exists, executed or accepted more often than promised
	Unexpected Kind = "unexpected" // never submitted, or refused, or ended in a wrong state
	Disorder   Kind = "disorder"   // started too early
	Restarted  Kind = "restarted"  // executed again without a cause
	Backwards  Kind = "backwards"  // an attempt or token that decreased
	Illegal    Kind = "illegal"    // no order of the calls explains their results
	Wrong      Kind = "wrong"      // an explanation or a plan that is not true
	Undecided  Kind = "undecided"  // the checker could not decide
	Diverged   Kind = "diverged"   // replicas differ
	Damaged    Kind = "damaged"    // stored bytes differ from what was written
)

// A Fault is one broken promise.
type Fault struct {
	Kind  Kind   `json:"kind"`
	Where string `json:"where"`
	Text  string `json:"text"`
}

// String formats the fault as one line.
func (f Fault) String() string { return fmt.Sprintf("%s: %s: %s", f.Kind, f.Where, f.Text) }

// list collects faults.
type list []Fault

func (l *list) add(kind Kind, where, format string, args ...any) {
	*l = append(*l, Fault{Kind: kind, Where: where, Text: fmt.Sprintf(format, args...)})
}

// Count counts the faults of the given kinds.
func Count(faults []Fault, kinds ...Kind) int {
	n := 0
	for _, f := range faults {
		for _, k := range kinds {
			if f.Kind == k {
				n++
			}
		}
	}
	return n
}

// WriteLines writes values to a new file, one line of JSON each.
func WriteLines[T any](path string, values []T) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	out := bufio.NewWriter(file)
	encoder := json.NewEncoder(out)
	for i := range values {
		if err = encoder.Encode(&values[i]); err != nil {
			break
		}
	}
	if err := errors.Join(err, out.Flush(), file.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// ReadLines reads what WriteLines wrote.
func ReadLines[T any](path string) ([]T, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	defer func() { _ = file.Close() }() // read only
	var values []T
	for decoder := json.NewDecoder(bufio.NewReader(file)); ; {
		var v T
		if err := decoder.Decode(&v); errors.Is(err, io.EOF) {
			return values, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		values = append(values, v)
	}
}
