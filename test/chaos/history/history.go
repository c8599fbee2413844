package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"github.com/dtask/dtask/test/cluster/ledger"
)

// Kind is the kind of a call.
type Kind string

// The kinds of calls.
const (
	Submit Kind = "submit" // store the job Body under Key
	Cancel Kind = "cancel" // cancel Job, or its Task
	Read   Kind = "read"   // read Job, linearizable; with Task, that task
	Stale  Kind = "stale"  // read Job at any replica

	Explain Kind = "explain" // why Task of Job is in its state; it has no effect
	Plan    Kind = "plan"    // a job that is never submitted; it has no effect

	SetSchedule    Kind = "set schedule" // make or replace Schedule
	PauseSchedule  Kind = "pause schedule"
	ResumeSchedule Kind = "resume schedule"
	DeleteSchedule Kind = "delete schedule"
	ReadSchedule   Kind = "read schedule" // and its last outcomes, linearizable
)

// Verdict is how a call ended.
type Verdict string

// The verdicts.
const (
	OK      Verdict = "ok"
	Fail    Verdict = "fail"    // definitely without effect
	Unknown Verdict = "unknown" // it may have had its effect, or may have it later
)

// Never is the return of a call that did not return, or whose outcome is
// unknown: it may take effect at any time.
const Never = time.Duration(math.MaxInt64)

// A Call is one call of one client.
type Call struct {
	N      int    `json:"n"` // number of the call, from 1
	Client int    `json:"client"`
	Kind   Kind   `json:"kind"`
	Key    string `json:"key,omitempty"`
	Body   string `json:"body,omitempty"` // identifies what was submitted: equal for equal jobs
	Job    string `json:"job,omitempty"`  // the subject; of a submission: the answer
	Task   string `json:"task,omitempty"`

	Call   time.Duration `json:"call"`
	Return time.Duration `json:"return,omitempty"` // Never if Unknown

	Verdict Verdict `json:"verdict,omitempty"`
	Error   string  `json:"error,omitempty"`
	// Reason is the kind of a failure: conflict, not found.
	Reason  string `json:"reason,omitempty"`
	State   string `json:"state,omitempty"`   // state that was read, of the job or the task
	Attempt int    `json:"attempt,omitempty"` // that was read
	Already bool   `json:"already,omitempty"` // the answer reported a repetition: already cancelled or submitted
	Tasks   int    `json:"tasks,omitempty"`   // of a submission
	Count   int    `json:"count,omitempty"`   // number of completed tasks that was read

	Answered string   `json:"answered,omitempty"` // the task that an explanation is about, as JOB/TASK
	Codes    []string `json:"codes,omitempty"`    // of its reasons
	// Settled means that everything had ended when a task was explained.
	Settled bool   `json:"settled,omitempty"`
	Plan    string `json:"plan,omitempty"` // what was read of a plan
	Want    string `json:"want,omitempty"` // what that must be

	Schedule string `json:"schedule,omitempty"` // the subject of a call about a schedule
	Created  int64  `json:"created,omitempty"`  // when the schedule that was read was first set, by its leader's clock
	Ticks    []Tick `json:"ticks,omitempty"`    // what was read of its last ticks, the oldest first
	Wall     int64  `json:"wall,omitempty"`     // time of day when that was read, by the client's clock, in ms
}

// A Tick is what happened to a tick of a schedule.
type Tick struct {
	At      int64    `json:"at"` // ms
	Became  Decision `json:"became"`
	Job     string   `json:"job,omitempty"`
	Earlier int      `json:"earlier,omitempty"` // missed ticks before it that were skipped with it; 1,000 = at least
}

// Decision is what a tick became.
type Decision string

// The decisions.
const (
	TickRan    Decision = "ran"
	TickOpen   Decision = "open"   // skipped because of an earlier run
	TickMissed Decision = "missed" // skipped
)

// Reasons of failures.
const (
	Conflict = "conflict"
	NotFound = "not found"
	Other    = "other"
	// Unavailable is the reason of an explanation or a plan that the cluster could not give in
	// time, because it had no leader, or was overloaded.
	Unavailable = "unavailable"
)

// A Recorder writes calls.
type Recorder struct {
	mu   sync.Mutex // guards all below
	file *os.File
	out  *bufio.Writer
	n    int
	err  error // the first one
}

// Open creates a file and a recorder that writes to it. The caller closes it.
func Open(path string) (*Recorder, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("opening history: %w", err)
	}
	return &Recorder{file: file, out: bufio.NewWriter(file)}, nil
}

// Begin numbers and writes a call that is about to be made.
func (r *Recorder) Begin(c Call) Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	c.N = r.n
	var err error
	if c.Call, err = ledger.Now(); err != nil && r.err == nil {
		r.err = err
	}
	r.writeLocked(c)
	return c
}

// End writes how a call ended.
func (r *Recorder) End(c Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if c.Return, err = ledger.Now(); err != nil && r.err == nil {
		r.err = err
	}
	if c.Verdict == Unknown {
		c.Return = Never
	}
	r.writeLocked(c)
}

func (r *Recorder) writeLocked(c Call) {
	text, err := json.Marshal(c)
	if err == nil {
		_, err = r.out.Write(append(text, '\n'))
	}
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("writing history: %w", err)
	}
}

// Close writes what is buffered and returns the first error.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.err, r.out.Flush(), r.file.Close())
}

// Load reads the calls of a file, in the order in which they were made.
func Load(path string) ([]Call, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading history: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	var calls []Call
	for decoder := json.NewDecoder(bufio.NewReader(file)); ; {
		var c Call
		if err := decoder.Decode(&c); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break // the last line of a killed recorder may be torn
		} else if err != nil {
			return nil, fmt.Errorf("reading history after call %d: %w", len(calls), err)
		}
		switch {
		case c.N == len(calls)+1:
			calls = append(calls, c)
		case c.N >= 1 && c.N <= len(calls):
			calls[c.N-1] = c
		default:
			return nil, fmt.Errorf("reading history: call %d follows call %d", c.N, len(calls))
		}
	}
	for i := range calls {
		if calls[i].Verdict == "" {
			calls[i].Verdict, calls[i].Return = Unknown, Never
		}
	}
	return calls, nil
}
