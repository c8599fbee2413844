package fsm

import (
	"cmp"
	"fmt"
	"slices"
)

// NoticeKind says what somebody is to be told, and by which way.
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

// String names the kind in words.
func (k NotificationKind) String() string {
	if k == 0 || k >= numNotificationKinds {
		return fmt.Sprintf("notice(%d)", uint8(k))
	}
	return notificationKindNames[k]
}

// endNotices are the kinds for the states in which a job may end.
var endNotifications = [numJobStates]NotificationKind{
	JobCompleted: JobCompletedNotification, JobFailed: JobFailedNotification, JobCancelled: JobCancelledNotification,
}

// OfJob reports whether the notification is of the end of a job.
func (k NotificationKind) OfJob() bool {
	return k >= JobCompletedNotification && k <= JobCancelledNotification
}

// Notice is something that somebody has yet to be told. What is told is made
// from the state when it is sent: the record stays small.
type Notification struct {
	Number   uint64 // from 1, only grows, never reused
	Kind     NotificationKind
	Task     TaskRef // of the end of a job: the job, and index 0
	QueuedMS int64   // stamp of the entry that it came with
}

// notificationQueue holds notifications, oldest first.
type notificationQueue struct {
	own  *ownership
	list []Notification
}

// write returns the queue for changing.
func (q *notificationQueue) write(own *ownership) *notificationQueue {
	if q.own != own {
		q.list, q.own = slices.Clone(q.list), own
	}
	return q
}

// find returns where a notification stands.
func (q *notificationQueue) find(number uint64) (at int, found bool) {
	return slices.BinarySearchFunc(q.list, number, func(n Notification, number uint64) int { return cmp.Compare(n.Number, number) })
}

// remove takes one out; the shorter side moves, which mostly is none.
func (q *notificationQueue) remove(at int) {
	if at >= len(q.list)/2 {
		q.list = slices.Delete(q.list, at, at+1)
		return
	}
	copy(q.list[1:at+1], q.list[:at])
	q.list = q.list[1:]
}

// notification queues a notification. In a full queue the oldest makes room: no end of a job
// is ever refused because somebody cannot be told of others.
func (s *State) queueNotification(kind NotificationKind, t TaskRef, fx *Effects) {
	q := s.notifications.write(s.own)
	if len(q.list) >= maxNotifications {
		s.mixNotification(q.list[0])
		q.remove(0)
		fx.notificationDropped()
	}
	n := Notification{Number: s.nextNotification, Kind: kind, Task: t, QueuedMS: s.now}
	s.nextNotification++
	q.list = append(q.list, n)
	s.mixNotification(n)
	fx.notificationQueued()
}

// noticeEnd queues the notification of a job's end, if it has a webhook.
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

// NotifyDeadLetters queues notifications of dead letters. The state machine has no settings.
// The leader has them and proposes this beside the operation that ends the task.
type NotifyDeadLetters = List[DeadLetterNotification, notifyOp]

type notifyOp struct {
	fixedSize[DeadLetterNotification]
}

func (notifyOp) kind() opKind { return 32 }

func (notifyOp) fields(c *coder, it *DeadLetterNotification) {
	c.task(&it.Task)
	number(c, &it.Kind)
}

// apply queues the notification of a dead letter, as the leader's settings ask
// for.
// Rejects: JobNotFound, TaskNotFound, WrongState unless the task is dead, Malformed
// for a kind that is not of dead letters.
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

// RecordDelivered removes notifications from the queue that were delivered or dropped.
type RecordDelivered = List[Delivery, recordDeliveredOp]

type recordDeliveredOp struct{ fixedSize[Delivery] }

func (recordDeliveredOp) kind() opKind { return 33 }

func (recordDeliveredOp) fields(c *coder, it *Delivery) {
	number(c, &it.Number)
	c.bool(&it.Delivered)
}

// apply takes a notification out.
// Rejects: AlreadyEnded if it is not there: it was told, given up, or pushed out
// of a full queue.
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

// Notices returns what somebody has yet to be told, from a number on, oldest
// first; at most 10,000. The list is the caller's.
func (s *State) Notifications(from uint64) []Notification {
	at, _ := s.notifications.find(from)
	return append([]Notification(nil), s.notifications.list[at:]...)
}

// HasNotice reports whether a notification still waits to be told.
func (s *State) HasNotification(number uint64) bool {
	_, found := s.notifications.find(number)
	return found
}

// NoticeCount is how many notifications wait to be told.
func (s *State) NotificationCount() int { return len(s.notifications.list) }

func (s *State) mixNotification(n Notification) {
	s.mix(n.Number)
	s.mix(uint64(n.Kind)<<32 | uint64(n.Task.Index))
	s.mix(uint64(n.Task.Job))
	s.mix(uint64(n.QueuedMS)) //nolint:gosec // bits only
}

// noticesPerFrame bounds a snapshot's frame of notifications.
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

// checkNotices checks the queue: of jobs that were, ascending, within bounds.
func (s *State) checkNotifications() error {
	if len(s.notifications.list) > maxNotifications {
		return fmt.Errorf("has %d notices", len(s.notifications.list))
	}
	last := uint64(0)
	for _, n := range s.notifications.list {
		if n.Number <= last || n.Number >= s.nextNotification {
			return fmt.Errorf("notice %d stands behind %d, next is %d", n.Number, last, s.nextNotification)
		}
		last = n.Number
		if n.Kind == 0 || n.Kind >= numNotificationKinds || n.Task.Job == 0 || n.Task.Job >= s.nextJob || n.Kind.OfJob() && n.Task.Index != 0 {
			return fmt.Errorf("notice %d is of no kind or of no job", n.Number)
		}
	}
	return nil
}
