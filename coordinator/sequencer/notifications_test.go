package sequencer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func failing(fsm.AssignItem) *dtaskv1.Outcome {
	return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, ExitCode: 3}
}

func (c *cluster) notifications() []fsm.Notification {
	var list []fsm.Notification
	c.machine.Read(func(st *fsm.State, _ uint64) { list = st.Notifications(0) })
	return list
}

func TestANewDeadLetterHasTheConfiguredNotifications(t *testing.T) {
	t.Parallel()
	for name, kinds := range map[string][]fsm.NotificationKind{
		"none": nil, "webhook": {fsm.DeadLetterWebhookNotification}, "both": {fsm.DeadLetterWebhookNotification, fsm.DeadLetterCommandNotification},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				woken := make(chan struct{}, 100)
				c.config = func(cfg *sequencer.Config) {
					cfg.DeadLetterNotifications, cfg.NotificationsCommitted = kinds, func() { woken <- struct{}{} }
				}
				s, stop := c.lead()
				attachWorker(t, s, "w", "a", 4, failing)
				id := mustSubmit(t, s, spec{key: "k", n: 2, header: &dtaskv1.JobHeader{Name: "j", OnFailure: dtaskv1.OnFailure_ON_FAILURE_CONTINUE}})
				c.awaitEnd(id)
				synctest.Wait() // the state has them before the leader learns of the commit
				got := c.notifications()
				if len(got) != 2*len(kinds) || (len(woken) > 0) != (len(kinds) > 0) {
					t.Fatalf("%d notifications, woken %d times; want %d notifications", len(got), len(woken), 2*len(kinds))
				}
				for i, n := range got {
					if n.Kind != kinds[i%len(kinds)] || n.Task.Job != id {
						t.Errorf("notification %d is %+v", i, n)
					}
				}
				if stop(); len(c.notifications()) != len(got) {
					t.Error("the end of a term changed the notifications")
				}
			})
		})
	}
}

func TestNotificationsSurviveTheirLeaderAndAreRemovedOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	first, stop := c.lead()
	id := mustSubmit(t, first, spec{key: "k", n: 1, header: &dtaskv1.JobHeader{Name: "j", Webhook: "http://127.0.0.1:1/"}})
	if _, err := first.CancelJob(t.Context(), id, "not needed"); err != nil {
		t.Fatal(err)
	}
	stop()
	second, _ := c.lead()
	got := c.notifications()
	if len(got) != 1 || got[0].Kind != fsm.JobCancelledNotification || got[0].Task.Job != id {
		t.Fatalf("notifications after a change of leader: %+v", got)
	}
	for range 2 { // the second time it no longer exists: no error
		if err := second.RecordDelivered(t.Context(), []fsm.Delivery{{Number: got[0].Number, Delivered: true}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.notifications(); len(got) != 0 {
		t.Errorf("not removed: %+v", got)
	}
}

func TestAJobIsKeptUntilItsNotificationsAreDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *sequencer.Config) { cfg.KeepJobs = 1 }
		s, _ := c.lead()
		attachWorker(t, s, "w", "a", 4, succeed)
		pending := mustSubmit(t, s, spec{key: "notify", n: 1, header: &dtaskv1.JobHeader{Name: "j", Webhook: "http://127.0.0.1:1/"}})
		c.awaitEnd(pending)
		var last fsm.JobID
		for i := range 3 {
			last = mustSubmit(t, s, spec{key: fmt.Sprint(i), n: 1})
			c.awaitEnd(last)
		}
		kept := func() (jobs []fsm.JobID) {
			<-time.After(time.Second)
			c.machine.Read(func(st *fsm.State, _ uint64) {
				for j := range st.Jobs(0) {
					jobs = append(jobs, j.ID)
				}
			})
			return jobs
		}
		if got := kept(); fmt.Sprint(got) != fmt.Sprint([]fsm.JobID{last, pending}) {
			t.Errorf("kept %v, want the last, %d, and the one with a notification, %d", got, last, pending)
		}
		if err := s.RecordDelivered(t.Context(), []fsm.Delivery{{Number: 1}}); err != nil {
			t.Fatal(err)
		}
		if got := kept(); fmt.Sprint(got) != fmt.Sprint([]fsm.JobID{last}) {
			t.Errorf("kept %v after the delivery, want the last, %d", got, last)
		}
	})
}
