package fsm

import (
	"cmp"
	"fmt"
	"slices"
)

// NotificationKind is the subject of a notification and its destination.
type NotificationKind uint8

// The kinds of notifications. The zero value is never valid.
const (
	JobCompletedNotification      NotificationKind = iota + 1 // to the job's webhook
	JobFailedNotification                                     // to the job's webhook
	JobCancelledNotification                                  // to the job's webhook
	DeadLetterWebhookNotification                             // a task became a dead letter: to the cluster's webhook
	DeadLetterCommandNotification                             // the same, to the cluster's command
	numNotificationKinds
)

var notificationKindNames = [numNotificationKinds]string{"", "job completed", "job failed", "job cancelled", "dead letter (webhook)", "dead letter (command)"}

// String returns the kind as text.
func (k NotificationKind) String() string {
	if k == 0 || k >= numNotificationKinds {
		return fmt.Sprintf("notification(%d)", uint8(k))
	}
	return notificationKindNames[k]
}

// endNotifications are the kinds by the terminal state of the job.
var endNotifications = [numJobStates]NotificationKind{
	JobCompleted: JobCompletedNotification, JobFailed: JobFailedNotification, JobCancelled: JobCancelledNotification,
}

// OfJob reports whether the notification is about the end of a job.
func (k NotificationKind) OfJob() bool {
	return k >= JobCompletedNotification && k <= JobCancelledNotification
}

// Notification is a notification that was not delivered yet. Its contents are
// taken from the state when it is sent, so that the record stays small.
type Notification struct {
	Number   uint64 // from 1, only grows, never reused
	Kind     NotificationKind
	Task     TaskRef // if it is about a job: the job and index 0
	QueuedMS int64   // time stamp of its entry
}

// notifications is the queue of undelivered notifications, oldest first.
type notifications struct {
	own  *ownership
	list []Notification
	next uint64 // the number of the next notification
}

// write returns the queue for changing.
func (q *notifications) write(own *ownership) *notifications {
	if q.own != own {
		q.list, q.own = slices.Clone(q.list), own
	}
	return q
}

// find returns the position of a notification.
func (q *notifications) find(number uint64) (at int, found bool) {
	return slices.BinarySearchFunc(q.list, number, func(n Notification, number uint64) int { return cmp.Compare(n.Number, number) })
}

// remove removes a notification by moving the shorter side, which is usually
// empty.
func (q *notifications) remove(at int) {
	if at >= len(q.list)/2 {
		q.list = slices.Delete(q.list, at, at+1)
		return
	}
	copy(q.list[1:at+1], q.list[:at])
	q.list = q.list[1:]
}

// queueNotification queues a notification. A full queue drops its oldest one:
// no operation is rejected because notifications cannot be delivered.
func (s *State) queueNotification(kind NotificationKind, t TaskRef, fx *Effects) {
	q := s.notifications.write(s.own)
	if len(q.list) >= maxNotifications {
		s.mixNotification(q.list[0])
		q.remove(0)
		fx.notificationDropped()
	}
	n := Notification{Number: q.next, Kind: kind, Task: t, QueuedMS: s.now}
	q.next++
	q.list = append(q.list, n)
	s.mixNotification(n)
	fx.notificationQueued()
}

// notifyEnd queues the notification of a job's end if the job has a webhook.
func (s *State) notifyEnd(j *job, fx *Effects) {
	if j.header.GetWebhook() == "" {
		return
	}
	s.queueNotification(endNotifications[j.state], TaskRef{Job: j.id}, fx)
}

// DeadLetterNotification asks for a notification of a dead letter.
type DeadLetterNotification struct {
	Task TaskRef
	Kind NotificationKind // DeadLetterWebhookNotification or DeadLetterCommandNotification
}

// NotifyDeadLetters queues notifications of dead letters. The state machine
// has no settings. The leader has them and proposes this beside the operation
// that ends the task.
type NotifyDeadLetters = List[DeadLetterNotification, notifyOp]

type notifyOp struct {
	fixedSize[DeadLetterNotification]
}

func (notifyOp) kind() opKind { return 32 }

func (notifyOp) fields(c *coder, it *DeadLetterNotification) {
	c.task(&it.Task)
	number(c, &it.Kind)
}

// apply queues the notification of a dead letter.
// Rejects: JobNotFound, TaskNotFound, WrongState unless the task is dead,
// Malformed unless the kind is one of dead letters.
func (notifyOp) apply(s *State, it DeadLetterNotification, fx *Effects) Reason {
	j := s.sealedJob(it.Task.Job)
	switch {
	case j == nil:
		return JobNotFound
	case it.Task.Index >= j.total:
		return TaskNotFound
	case it.Kind != DeadLetterWebhookNotification && it.Kind != DeadLetterCommandNotification:
		return Malformed
	case j.records.at(it.Task.Index).state != Dead:
		return WrongState
	}
	s.queueNotification(it.Kind, it.Task, fx)
	return Accepted
}

// Delivery is the outcome of a notification.
type Delivery struct {
	Number    uint64
	Delivered bool // else it was dropped
}

// RecordDelivered removes notifications from the queue that were delivered or
// dropped.
type RecordDelivered = List[Delivery, recordDeliveredOp]

type recordDeliveredOp struct{ fixedSize[Delivery] }

func (recordDeliveredOp) kind() opKind { return 33 }

func (recordDeliveredOp) fields(c *coder, it *Delivery) {
	number(c, &it.Number)
	c.bool(&it.Delivered)
}

// apply removes a notification.
// Rejects: AlreadyEnded if it was delivered or dropped before.
func (recordDeliveredOp) apply(s *State, it Delivery, _ *Effects) Reason {
	at, found := s.notifications.find(it.Number)
	if !found {
		return AlreadyEnded
	}
	q := s.notifications.write(s.own)
	s.mixNotification(q.list[at])
	q.remove(at)
	return Accepted
}

// Notifications returns the undelivered notifications from a number on,
// oldest first; at most 10,000. The list belongs to the caller.
func (q *notifications) Notifications(from uint64) []Notification {
	at, _ := q.find(from)
	return append([]Notification(nil), q.list[at:]...)
}

// HasNotification reports whether a notification is undelivered.
func (q *notifications) HasNotification(number uint64) bool {
	_, found := q.find(number)
	return found
}

// NotificationCount is the number of undelivered notifications.
func (q *notifications) NotificationCount() int { return len(q.list) }

func (d *digester) mixNotification(n Notification) {
	d.mix(n.Number)
	d.mix(uint64(n.Kind)<<32 | uint64(n.Task.Index))
	d.mix(uint64(n.Task.Job))
	d.mix(uint64(n.QueuedMS)) //nolint:gosec // bits only
}

// notificationsPerFrame is the maximum number of notifications in a frame of
// a snapshot.
const notificationsPerFrame = 4096

func (f *frameWriter) notifications(s *State) {
	for part := range slices.Chunk(s.notifications.list, notificationsPerFrame) {
		list(&f.c, &part, func(n *Notification) { n.fields(&f.c) })
		f.frame(frameNotifications)
	}
}

func (n *Notification) fields(c *coder) {
	number(c, &n.Number)
	number(c, &n.Kind)
	c.task(&n.Task)
	c.i64(&n.QueuedMS)
}

func (f *frameReader) notifications(d *decoder) {
	var part []Notification
	c := coder{d: d}
	list(&c, &part, func(n *Notification) { n.fields(&c) })
	q := f.s.notifications.write(f.s.own)
	q.list = append(q.list, part...)
}

// check checks that the notifications ascend, are of known jobs,
// and are not too many.
func (q *notifications) check(nextJob JobID) error {
	if len(q.list) > maxNotifications {
		return fmt.Errorf("%d notifications", len(q.list))
	}
	last := uint64(0)
	for _, n := range q.list {
		if n.Number <= last || n.Number >= q.next {
			return fmt.Errorf("notification %d follows %d, next is %d", n.Number, last, q.next)
		}
		last = n.Number
		if n.Kind == 0 || n.Kind >= numNotificationKinds || n.Task.Job == 0 || n.Task.Job >= nextJob || n.Kind.OfJob() && n.Task.Index != 0 {
			return fmt.Errorf("notification %d has an invalid kind or job", n.Number)
		}
	}
	return nil
}
