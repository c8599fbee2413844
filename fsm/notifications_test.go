package fsm

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
)

const someWebhook = "http://127.0.0.1:1/ended"

// endings bring job 1, whose only task worker 1 holds, to each of its ends.
var endings = map[NotificationKind]func(h HeldAttempt) Op{
	JobCompletedNotification: func(h HeldAttempt) Op { return complete(h) },
	JobFailedNotification:    func(h HeldAttempt) Op { return failed(h, NextFailed) },
	JobCancelledNotification: func(HeldAttempt) Op { return &CancelJob{Job: 1, Reason: "not needed"} },
}

func TestEachEndOfAJobWithAWebhookHasOneNotification(t *testing.T) {
	t.Parallel()
	for kind, end := range endings {
		for _, hook := range []string{"", someWebhook} {
			p := plan(nil)
			p.webhook = hook
			w := newWorld(t).do(worker(1))
			w.submit(p)
			h := w.assign(0, 1)
			if n := w.s.NotificationCount(); n != 0 {
				t.Fatalf("%v: got %d notifications before the end", kind, n)
			}
			w.do(end(h))
			w.try(end(h)) // a second copy
			var want []Notification
			if hook != "" {
				want = []Notification{{Number: 1, Kind: kind, Task: TaskRef{Job: 1}, QueuedMS: w.now - 10}}
			}
			if got := w.s.Notifications(0); !slices.Equal(got, want) {
				t.Errorf("%v, webhook %q: notices %v, want %v", kind, hook, got, want)
			}
		}
	}
}

func TestARetriedJobThatEndsAgainIsNotifiedAgain(t *testing.T) {
	t.Parallel()
	p := plan(nil)
	p.webhook = someWebhook
	w := newWorld(t).do(worker(1))
	w.submit(p)
	w.do(failed(w.assign(0, 1), NextDead), &Revive{Job: 1})
	w.do(complete(w.assign(0, 1)))
	got := w.s.Notifications(0)
	if len(got) != 2 || got[0].Kind != JobFailedNotification || got[1].Kind != JobCompletedNotification || got[1].Number != 2 {
		t.Errorf("got notifications %v, want a failure and then a completion", got)
	}
}

func TestADeadLetterHasANotificationOnlyIfTheLeaderProposesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil, nil))
	w.do(failed(w.assign(0, 1), NextDead))
	if n := w.s.NotificationCount(); n != 0 {
		t.Fatalf("got %d notifications without a proposal", n)
	}
	ask := func(index uint32, kind NotificationKind) Reason {
		return w.try(&NotifyDeadLetters{Items: []DeadLetterNotification{{ref(1, index), kind}}})
	}
	for what, c := range map[string]struct{ got, want Reason }{
		"webhook":         {ask(0, DeadLetterWebhookNotification), Accepted},
		"command":         {ask(0, DeadLetterCommandNotification), Accepted},
		"end of a job":    {ask(0, JobFailedNotification), Malformed},
		"no kind":         {ask(0, 0), Malformed},
		"a task not dead": {ask(1, DeadLetterWebhookNotification), WrongState},
		"no task":         {ask(2, DeadLetterWebhookNotification), TaskNotFound},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
	if n := w.s.NotificationCount(); n != 2 {
		t.Errorf("got %d notifications, want 2", n)
	}
}

func TestADeliveredNotificationIsRemovedAndItsNumberIsNotReused(t *testing.T) {
	t.Parallel()
	w := lettersOf(t, 3)
	told := func(n uint64) Reason { return w.try(&RecordDelivered{Items: []Delivery{{Number: n, Delivered: true}}}) }
	if a, b, c := told(2), told(2), told(4); a != Accepted || b != AlreadyEnded || c != AlreadyEnded {
		t.Errorf("delivered: got %v, again: %v, unknown: %v", a, b, c)
	}
	if told(3); w.s.HasNotification(3) || w.s.HasNotification(2) || !w.s.HasNotification(1) {
		t.Errorf("left: %v", w.s.Notifications(0))
	}
	w.do(&NotifyDeadLetters{Items: []DeadLetterNotification{{ref(1, 0), DeadLetterWebhookNotification}}})
	if got := w.s.Notifications(2); len(got) != 1 || got[0].Number != 4 {
		t.Errorf("next notification: got %v, want number 4", got)
	}
}

// lettersOf returns a world with a dead task and n notifications.
func lettersOf(t *testing.T, n int) *world {
	t.Helper()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	w.do(failed(w.assign(0, 1), NextDead))
	w.do(manyNotices(n))
	return w
}

func manyNotices(n int) *NotifyDeadLetters {
	return &NotifyDeadLetters{Items: slices.Repeat([]DeadLetterNotification{{ref(1, 0), DeadLetterCommandNotification}}, n)}
}

func TestAFullNotificationQueueDropsTheOldest(t *testing.T) {
	t.Parallel()
	w, twin, fx := lettersOf(t, maxNotifications), newModel(), new(Effects)
	p := plan(nil)
	p.webhook = someWebhook
	id := w.submit(p)
	if r := w.s.Apply(Entry{NowMS: 7, Ops: []Op{&CancelJob{Job: id}, manyNotices(2)}}, fx); r != Accepted {
		t.Fatal(r)
	}
	if fx.Notifications != 3 || fx.NotificationsDropped != 3 || w.s.NotificationCount() != maxNotifications {
		t.Errorf("got %d queued, %d dropped, %d undelivered; want 3, 3, %d", fx.Notifications, fx.NotificationsDropped, w.s.NotificationCount(), maxNotifications)
	}
	for range maxNotifications {
		twin.queueNotification(DeadLetterCommandNotification, 1, 0)
	}
	twin.noticesLost = 0
	twin.queueNotification(JobCancelledNotification, 2, 0)
	twin.queueNotification(DeadLetterCommandNotification, 1, 0)
	twin.queueNotification(DeadLetterCommandNotification, 1, 0)
	got := w.s.Notifications(0)
	if first, last := got[0].Number, got[len(got)-1].Number; first != 4 || last != maxNotifications+3 || twin.noticesLost != 3 {
		t.Errorf("got numbers %d to %d, want 4 to %d", first, last, maxNotifications+3)
	}
	for i := range got {
		got[i].QueuedMS = 0
		twin.notices[i].QueuedMS = 0
	}
	if !slices.Equal(got, twin.notices) {
		t.Error("the queue differs from that of the reference model")
	}
	if err := w.s.Check(); err != nil {
		t.Error(err)
	}
	sameState(t, "after a restore", restored(t, snapshotOf(t, w.s)), w.s)
}

func TestNotificationsSurviveASnapshotAndForksDoNotShareThem(t *testing.T) {
	t.Parallel()
	w := lettersOf(t, 5)
	fork := w.s.Fork()
	again := restored(t, snapshotOf(t, w.s))
	if !slices.Equal(again.Notifications(0), w.s.Notifications(0)) || !maps.Equal(again.DeadLettersByType(), map[string]int{"": 1}) {
		t.Errorf("after a restore: got %v, dead letters %v", again.Notifications(0), again.DeadLettersByType())
	}
	w.do(&RecordDelivered{Items: []Delivery{{Number: 1}, {Number: 4}}}, manyNotices(1))
	if fork.NotificationCount() != 5 || !fork.HasNotification(1) || !fork.HasNotification(4) || fork.HasNotification(6) {
		t.Errorf("the fork changed with its origin: got %v", fork.Notifications(0))
	}
	fork.Apply(Entry{Ops: []Op{&RecordDelivered{Items: []Delivery{{Number: 2}}}}}, nil)
	if !w.s.HasNotification(2) {
		t.Error("the origin changed with its fork")
	}
}

// The digest of a replica whose notifications differ by a bit differs when they
// are delivered.
func TestADamagedNotificationIsDetectedWhenItIsDelivered(t *testing.T) {
	t.Parallel()
	base := lettersOf(t, 1).s
	for field, flip := range map[string]func(n *Notification){
		"kind":  func(n *Notification) { n.Kind = DeadLetterWebhookNotification },
		"job":   func(n *Notification) { n.Task.Job ^= 2 },
		"index": func(n *Notification) { n.Task.Index ^= 1 },
		"since": func(n *Notification) { n.QueuedMS ^= 1 },
	} {
		good, bad := base.Fork(), base.Fork()
		flip(&bad.notifications.write(bad.own).list[0])
		for _, s := range []*State{good, bad} {
			s.Apply(Entry{Ops: []Op{&RecordDelivered{Items: []Delivery{{Number: 1}}}}}, nil)
		}
		if good.Digest() == bad.Digest() {
			t.Errorf("damage of %s was not detected", field)
		}
	}
}

func TestASnapshotWithInvalidNotificationsIsRefused(t *testing.T) {
	t.Parallel()
	for name, bend := range map[string]func(s *State){
		"number in the future": func(s *State) { s.notifications.write(s.own).list[1].Number = 9 },
		"duplicate number":     func(s *State) { s.notifications.write(s.own).list[1].Number = 1 },
		"no kind":              func(s *State) { s.notifications.write(s.own).list[0].Kind = numNotificationKinds },
		"future job":           func(s *State) { s.notifications.write(s.own).list[0].Task.Job = 9 },
		"limit exceeded": func(s *State) {
			q := s.notifications.write(s.own)
			for range maxNotifications {
				q.list = append(q.list, Notification{Number: s.notifications.next, Kind: DeadLetterCommandNotification, Task: ref(1, 0)})
				s.notifications.next++
			}
		},
	} {
		s := lettersOf(t, 2).s
		bend(s)
		if _, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, s))); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestDeadLettersAreCountedByType(t *testing.T) {
	t.Parallel()
	p := plan(nil, nil, nil, nil)
	p.onFailure = continueOnFailure
	p.tasks[0].body, p.tasks[1].body, p.tasks[2].body = []byte("\x0a\x01a"), []byte("\x2a\x03\x12\x01a\x12\x01a"), []byte("\x12\x01a")
	p.tasks[3].policy = 1
	w := newWorld(t).do(worker(1))
	w.submit(p)
	want := func(what string, m map[string]int) {
		t.Helper()
		if got := w.s.DeadLettersByType(); fmt.Sprint(got) != fmt.Sprint(m) {
			t.Errorf("%s: %v, want %v", what, got, m)
		}
	}
	for i := range uint32(4) {
		w.do(failed(w.assign(i, 1), NextDead))
	}
	want("all dead", map[string]int{"command": 1, "run": 2, "once": 1})
	w.do(&Revive{Job: 1, Tasks: []uint32{1}}, &Purge{Job: 1, Tasks: []uint32{0}})
	want("one revived, one purged", map[string]int{"run": 1, "once": 1})
	w.do(complete(w.assign(1, 1)), &Archive{Items: []JobID{1}})
	want("forgotten", map[string]int{})
}
