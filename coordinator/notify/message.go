package notify

import (
	"cmp"
	"fmt"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/document"
)

// A message is a notification as it is sent.
type message struct {
	id    string // the same for every delivery
	event string
	url   string // empty = to the command
	ofJob bool   // the URL is a user's, not the operator's
	body  []byte
}

// eventTypes are the types of events by kind of notification.
var eventTypes = map[fsm.NotificationKind]string{
	fsm.JobCompletedNotification:      "job.completed",
	fsm.JobFailedNotification:         "job.failed",
	fsm.JobCancelledNotification:      "job.cancelled",
	fsm.DeadLetterWebhookNotification: "dead_letter",
	fsm.DeadLetterCommandNotification: "dead_letter",
}

// destination returns the URL that a notification is sent to; empty = to the
// command. ok is false if there is no destination.
func (h Hooks) destination(st *fsm.State, n fsm.Notification) (url string, ok bool) {
	switch n.Kind {
	case fsm.DeadLetterWebhookNotification:
		return h.DeadLetterWebhook, h.DeadLetterWebhook != ""
	case fsm.DeadLetterCommandNotification:
		return "", h.DeadLetterCommand != ""
	case fsm.JobCompletedNotification, fsm.JobFailedNotification, fsm.JobCancelledNotification:
		j, known := st.Job(n.Task.Job)
		return j.Header.GetWebhook(), known
	}
	return "", false
}

// compose makes the message from the current state. The result is resultGone if the
// notification was removed, and resultFailed if its job or destination is unknown.
func (d *deliverer) compose(n fsm.Notification) (m message, failed resultKind) {
	event := document.Event{Type: eventTypes[n.Kind], Timestamp: document.Time(n.QueuedMS)}
	d.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		if !st.HasNotification(n.Number) {
			failed = resultGone
			return
		}
		var ok bool
		if m.url, ok = d.cfg.Hooks.destination(st, n); ok {
			m.id = messageID(st.ClusterID(), n)
			event.Data = d.data(st, n)
		}
	})
	if event.Data == nil {
		return m, cmp.Or(failed, resultFailed)
	}
	body, err := document.Marshal(event)
	if err != nil {
		return m, resultFailed
	}
	m.event, m.body, m.ofJob = event.Type, body, n.Kind.OfJob()
	return m, 0
}

// data returns the document of a notification, or nil if its job is unknown.
func (d *deliverer) data(st *fsm.State, n fsm.Notification) any {
	if n.Kind.OfJob() {
		if j := d.cfg.Job(st, n.Task.Job); j != nil {
			return document.NewJob(j)
		}
	} else if l := d.cfg.DeadLetter(st, n.Task); l != nil {
		l.DiedAt = n.QueuedMS // a requeued task has no end time
		return document.NewDeadLetterWithHistory(l)
	}
	return nil
}

// messageID returns the ID of a message. It contains the time, so that a cluster
// that was restored to an older state doesn't reuse IDs.
func messageID(cluster string, n fsm.Notification) string {
	return fmt.Sprintf("dtask_%s_%d_%d", cluster[:min(len(cluster), 12)], n.Number, n.QueuedMS)
}
