package notify

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// message is a notice as it is sent.
type message struct {
	id    string // the same at every repeat
	event string
	url   string // empty: to the command
	body  []byte
}

// event is the body of every notice.
type event struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"` // when it happened
	Data      any    `json:"data"`
}

// job is what `dtaskctl status -o json` prints, without the tasks.
type job struct {
	ID             string  `json:"id"`
	Name           string  `json:"name"`
	State          string  `json:"state"`
	Owner          string  `json:"owner"`
	Priority       string  `json:"priority"`
	SubmittedAt    *string `json:"submitted_at"`
	StartedAt      *string `json:"started_at"`
	CompletedAt    *string `json:"completed_at"`
	TasksTotal     uint32  `json:"tasks_total"`
	TasksCompleted uint32  `json:"tasks_completed"`
	TasksFailed    uint32  `json:"tasks_failed"`
	Retries        uint64  `json:"retries"`
	Version        uint32  `json:"version,omitempty"`
	MaxFailures    uint32  `json:"max_failures,omitempty"`
	FailuresBorne  uint32  `json:"failures_borne,omitempty"`
}

// letter is what `dtaskctl dlq show -o json` prints.
type letter struct {
	ID       string    `json:"id"`
	Job      string    `json:"job"`
	JobName  string    `json:"job_name"`
	Task     string    `json:"task"`
	Type     string    `json:"type"`
	Owner    string    `json:"owner"`
	DiedAt   *string   `json:"died_at"`
	Attempts uint32    `json:"attempts"`
	Error    string    `json:"error"`
	Payload  any       `json:"payload"` // JSON as it was submitted, a string if it is something else, or null
	History  []attempt `json:"history"`
}

// attempt is an attempt that failed or was lost.
type attempt struct {
	Attempt   uint32  `json:"attempt"`
	Worker    string  `json:"worker"`
	StartedAt *string `json:"started_at"`
	EndedAt   *string `json:"ended_at"`
	Error     string  `json:"error"`
}

// eventTypes are the types of events by kind of notice.
var eventTypes = map[fsm.NotificationKind]string{
	fsm.JobCompletedNotification:      "job.completed",
	fsm.JobFailedNotification:         "job.failed",
	fsm.JobCancelledNotification:      "job.cancelled",
	fsm.DeadLetterWebhookNotification: "dead_letter",
	fsm.DeadLetterCommandNotification: "dead_letter",
}

// destination is where a notice goes: a URL, or nothing and the command. ok is
// false if there is none any more.
func (h Hooks) destination(st *fsm.State, n fsm.Notification) (url string, ok bool) {
	switch n.Kind {
	case fsm.DeadLetterWebhookNotification:
		return h.LetterWebhook, h.LetterWebhook != ""
	case fsm.DeadLetterCommandNotification:
		return "", h.LetterCommand != ""
	case fsm.JobCompletedNotification, fsm.JobFailedNotification, fsm.JobCancelledNotification:
		j, known := st.Job(n.Task.Job)
		return j.Header.GetWebhook(), known
	}
	return "", false
}

// compose makes what is sent from the state as it is now. v is gone if the notice
// is not there any more, and hopeless if nothing is left that could be told.
func (d *deliverer) compose(n fsm.Notification) (m message, v verdict) {
	var data any
	var ok bool
	d.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		if !st.HasNotification(n.Number) {
			v = gone
			return
		}
		if m.url, ok = d.cfg.Hooks.destination(st, n); !ok {
			return
		}
		m.id = messageID(st.ClusterID(), n)
		if n.Kind.OfJob() {
			data, ok = jobOf(st, n)
		} else {
			data, ok = letterOf(st, n)
		}
	})
	if !ok {
		return m, cmp.Or(v, hopeless)
	}
	m.event = eventTypes[n.Kind]
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(event{Type: m.event, Timestamp: moment(n.QueuedMS), Data: data}) != nil {
		return m, hopeless // does not happen: what is encoded has been decoded before
	}
	m.body = bytes.TrimSpace(b.Bytes())
	return m, 0
}

// messageID names a notice for its receiver. The time is in it so that a cluster
// that was set back to an older state does not use a name twice.
func messageID(cluster string, n fsm.Notification) string {
	return fmt.Sprintf("dtask_%s_%d_%d", cluster[:min(len(cluster), 12)], n.Number, n.QueuedMS)
}

func jobOf(st *fsm.State, n fsm.Notification) (job, bool) {
	j, ok := st.Job(n.Task.Job)
	h := j.Header
	return job{
		ID: strconv.FormatUint(uint64(j.ID), 10), Name: h.GetName(), State: j.State.String(), Owner: h.GetOwner(), Priority: priority(j.Priority),
		SubmittedAt: stamp(j.SubmittedMS), StartedAt: stamp(j.StartedMS), CompletedAt: stamp(j.EndedMS),
		TasksTotal: j.Total, TasksCompleted: j.Counts[fsm.Completed], TasksFailed: j.Failed(), Retries: j.Retries, Version: j.Version,
		MaxFailures: h.GetMaxFailures(), FailuresBorne: j.Tolerated,
	}, ok
}

func priority(p dtaskv1.Priority) string {
	return strings.ToLower(strings.TrimPrefix(p.String(), "PRIORITY_"))
}

func letterOf(st *fsm.State, n fsm.Notification) (letter, bool) {
	j, ok := st.Job(n.Task.Job)
	if !ok {
		return letter{}, false
	}
	t, _ := st.Task(n.Task)
	id, name := strconv.FormatUint(uint64(j.ID), 10), st.Name(n.Task)
	l := letter{
		ID: id + "/" + name, Job: id, JobName: j.Header.GetName(), Task: name, Type: st.TaskType(n.Task), Owner: j.Header.GetOwner(),
		DiedAt: stamp(n.QueuedMS), Attempts: t.Attempt, Error: st.Result(n.Task).Error,
		Payload: payload(st, n.Task), History: []attempt{},
	}
	for _, a := range st.History(n.Task) {
		one := attempt{Attempt: a.Number, StartedAt: stamp(a.StartedMS), EndedAt: stamp(a.EndedMS), Error: a.Error}
		if w := st.Worker(a.Worker); w != nil {
			one.Worker = w.Name
		}
		l.History = append(l.History, one)
	}
	return l, true
}

// payload is that of a task as JSON shows it.
func payload(st *fsm.State, t fsm.TaskRef) any {
	text := string(taskbody.Encoded(st.Body(t)).Payload())
	if text == "" {
		return nil
	}
	if a, ok := st.ArrayTask(t); ok && a.Chunk == 1 {
		a.Each(func(index uint32, item []byte) {
			if expanded, err := array.Expand(text, array.Item{Index: index, JSON: item}, a.JSON); err == nil {
				text = expanded
			}
		})
	}
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return text
}

// stamp is a moment, in milliseconds since 1970, as RFC 3339 in UTC; nil for 0.
func stamp(ms int64) *string {
	if ms == 0 {
		return nil
	}
	s := moment(ms)
	return &s
}

func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00") }
