package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/document"
)

func TestAFinishedJobIsNotifiedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n, box := newCluster(t), newPipes(t), new(inbox)
		n.serve("a.test", box.answering(204))
		totals, _ := c.lead(n, nil)
		synctest.Wait()
		id := c.end("http://a.test/hook?x=1")
		synctest.Wait()
		got := box.all()
		if len(got) != 1 || c.left() != 0 || totals.Delivered.Load() != 1 {
			t.Fatalf("%d requests, %d notifications left, %d counted; want 1, 0, 1", len(got), c.left(), totals.Delivered.Load())
		}
		r := got[0]
		if r.url != "/hook?x=1" || r.header.Get("user-agent") != "dtask/0.9" || r.header.Get("content-type") != "application/json" || r.header.Get("webhook-signature") != "" {
			t.Errorf("request is %+v", r)
		}
		var e struct {
			Type, Timestamp string
			Data            document.Job
		}
		if err := json.Unmarshal([]byte(r.body), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type != "job.completed" || e.Data.ID != fmt.Sprint(id) || e.Data.State != "completed" || e.Data.Owner != "data" || e.Data.Priority != "high" || e.Data.TasksCompleted != 1 {
			t.Errorf("body is %s", r.body)
		}
		if _, err := time.Parse(time.RFC3339, e.Timestamp); err != nil {
			t.Error(err)
		}
	})
}

func TestTheStatusCodeDecidesBetweenDeliveryRetryAndDrop(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{
		200: "delivered", 204: "delivered", 299: "delivered",
		400: "dropped", 401: "dropped", 404: "dropped", 410: "dropped", 451: "dropped",
		301: "retried", 307: "retried", 408: "retried", 425: "retried", 429: "retried", 500: "retried", 503: "retried",
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, n, box, elsewhere := newCluster(t), newPipes(t), new(inbox), new(inbox)
				n.serve("elsewhere.test", elsewhere.answering(200))
				n.serve("a.test", func(w http.ResponseWriter, r *http.Request) {
					if box.take(r) > 0 {
						return // the second request succeeds
					}
					w.Header().Set("Location", "http://elsewhere.test/")
					w.WriteHeader(code)
				})
				c.end("http://a.test/")
				c.lead(n, nil)
				<-time.After(time.Minute)
				delivered, dropped := c.outcomes()
				requests := map[string]int{"delivered": 1, "dropped": 1, "retried": 2}[want]
				if len(box.all()) != requests || (delivered == 1) != (want != "dropped") || (dropped == 1) != (want == "dropped") || c.left() != 0 {
					t.Errorf("%d requests, %d delivered, %d dropped; want %s", len(box.all()), delivered, dropped, want)
				}
				if len(elsewhere.all()) != 0 {
					t.Error("a redirect was followed")
				}
				for _, r := range box.all() {
					if r.id != box.all()[0].id || r.id == "" {
						t.Errorf("redeliveries have different IDs: %q", r.id)
					}
				}
			})
		})
	}
}

func TestAFailingReceiverIsRetriedForADayWithGrowingDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n, box := newCluster(t), newPipes(t), new(inbox)
		n.serve("a.test", box.answering(500))
		c.end("http://a.test/")
		c.end("http://nobody.test/")
		totals, _ := c.lead(n, nil)
		start := time.Now()
		<-time.After(23 * time.Hour)
		if c.left() != 2 {
			t.Fatalf("%d notifications left after 23 hours, want both", c.left())
		}
		<-time.After(2 * time.Hour)
		if delivered, dropped := c.outcomes(); c.left() != 0 || delivered != 0 || dropped != 2 || totals.Dropped.Load() != 2 {
			t.Errorf("%d left, %d delivered, %d dropped after 25 hours; want 0, 0, 2", c.left(), delivered, dropped)
		}
		last, got := time.Duration(0), box.all()
		for i, r := range got[1:] {
			wait := r.at.Sub(got[i].at)
			if full := min(time.Second<<min(i, 20), 10*time.Minute); wait < full/2 || wait > full {
				t.Fatalf("wait %d is %v, want %v to %v", i+1, wait, full/2, full)
			}
			last = wait
		}
		if n := len(got); n < 150 || n > 330 || last < 5*time.Minute || got[len(got)-1].at.Sub(start) < 24*time.Hour {
			t.Errorf("%d requests, the last wait %v, the last one after %v", n, last, got[len(got)-1].at.Sub(start))
		}
	})
}

func TestRetryAfterCanOnlyLengthenTheDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n, box := newCluster(t), newPipes(t), new(inbox)
		n.serve("a.test", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", []string{"120", "86400", "soon", "-5"}[min(box.take(r), 3)])
			w.WriteHeader(http.StatusTooManyRequests)
		})
		c.end("http://a.test/")
		_, stop := c.lead(n, nil)
		<-time.After(20 * time.Minute)
		stop()
		got := box.all()
		if len(got) < 4 {
			t.Fatalf("%d requests in 20 minutes", len(got))
		}
		first, second, third := got[1].at.Sub(got[0].at), got[2].at.Sub(got[1].at), got[3].at.Sub(got[2].at)
		if first != 2*time.Minute || second != 10*time.Minute || third > 8*time.Second {
			t.Errorf("waits are %v, %v, %v; want 2m, 10m (the maximum), and then the default", first, second, third)
		}
	})
}

func TestAHangingReceiverDelaysNoOtherReceiver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n, box := newCluster(t), newPipes(t), new(inbox)
		free := make(chan struct{})
		defer close(free)
		var hung inbox
		for i := range 7 {
			n.serve(fmt.Sprintf("hangs%d.test", i), func(_ http.ResponseWriter, r *http.Request) {
				hung.take(r)
				select {
				case <-free:
				case <-r.Context().Done():
				}
			})
		}
		n.serve("a.test", box.answering(200))
		for range 30 {
			for i := range 7 {
				c.end(fmt.Sprintf("http://hangs%d.test/", i))
			}
			c.end("http://a.test/")
		}
		start := time.Now()
		c.lead(n, nil)
		synctest.Wait()
		got := box.all()
		if len(got) != 30 || time.Since(start) != 0 {
			t.Fatalf("%d of 30 delivered while other hosts hang", len(got))
		}
		if n := len(hung.all()); n != 7 {
			t.Errorf("%d requests in flight to 7 hosts, want one each", n)
		}
		<-time.After(10*time.Second + time.Millisecond)
		if n := len(hung.all()); n != 14 {
			t.Errorf("%d requests after the timeout of the first 7, want 14", n)
		}
	})
}

func TestHostsThatRespondTakePrecedence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n, box := newCluster(t), newPipes(t), new(inbox)
		n.serve("a.test", box.answering(200))
		for i := range 40 { // more failing hosts than deliveries in flight
			host := fmt.Sprintf("hangs%d.test", i)
			n.serve(host, hang)
			for range 5 {
				c.end("http://" + host + "/")
			}
		}
		c.lead(n, nil)
		<-time.After(2 * time.Minute)
		for range 10 {
			c.end("http://a.test/")
		}
		<-time.After(requestTimeout + time.Second)
		if got := len(box.all()); got != 10 {
			t.Errorf("%d of 10 delivered within a timeout while 40 other hosts hang", got)
		}
	})
}

func TestALargeQueueIsDeliveredInOrderAndRecordedInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 2500
		c, net, box := newCluster(t), newPipes(t), new(inbox)
		net.serve("a.test", box.answering(200))
		for range n {
			c.end("http://a.test/")
		}
		before := c.index
		totals, _ := c.lead(net, nil)
		<-time.After(time.Minute)
		if c.left() != 0 || totals.Delivered.Load() != n || totals.Attempts.Load() != n {
			t.Fatalf("%d left, %d delivered in %d attempts", c.left(), totals.Delivered.Load(), totals.Attempts.Load())
		}
		if entries := c.index - before; entries > n {
			t.Errorf("%d entries for %d outcomes", entries, n)
		}
		ids := map[string]bool{}
		for i, r := range box.all() {
			if ids[r.id] || !strings.HasPrefix(r.id, fmt.Sprintf("dtask_001122334455_%d_", i+1)) {
				t.Fatalf("request %d has ID %s", i, r.id)
			}
			ids[r.id] = true
		}
	})
}

func TestANewLeaderDeliversPendingNotifications(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n, box := newCluster(t), newPipes(t), new(inbox)
		var slow inbox
		n.serve("a.test", box.answering(200))
		n.serve("slow.test", func(_ http.ResponseWriter, r *http.Request) {
			if slow.take(r) == 0 {
				<-r.Context().Done()
			}
		})
		for range 20 {
			c.end("http://a.test/")
		}
		c.end("http://slow.test/")
		// The first leader delivers, but can't record it.
		c.refuse(errors.New("term ended"))
		_, stop := c.lead(n, nil)
		synctest.Wait()
		if len(box.all()) != 20 || len(slow.all()) != 1 || c.left() != 21 {
			t.Fatalf("first leader: %d and %d requests, %d notifications left; want 20, 1, 21", len(box.all()), len(slow.all()), c.left())
		}
		start := time.Now()
		if stop(); time.Since(start) > 0 {
			t.Errorf("the term took %v to end with a request in flight", time.Since(start))
		}
		c.refuse(nil)
		c.lead(n, nil)
		synctest.Wait()
		got := box.all()
		if len(got) != 40 || len(slow.all()) != 2 || c.left() != 0 {
			t.Fatalf("second leader: %d and %d requests in total, %d notifications left; want 40, 2, 0", len(got), len(slow.all()), c.left())
		}
		for i := range 20 {
			if got[i].id != got[20+i].id || got[i].body != got[20+i].body {
				t.Errorf("redelivery of %s has ID %s or another body", got[i].id, got[20+i].id)
			}
		}
	})
}

func TestRecordingIsRetriedWithoutAnotherDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n, box := newCluster(t), newPipes(t), new(inbox)
		n.serve("a.test", box.answering(200))
		c.refuse(errors.New("busy"))
		c.lead(n, nil)
		c.end("http://a.test/")
		<-time.After(time.Minute)
		c.refuse(nil)
		<-time.After(2 * time.Second)
		if len(box.all()) != 1 || c.left() != 0 {
			t.Errorf("%d requests, %d notifications left; want 1, 0", len(box.all()), c.left())
		}
	})
}

func TestNotificationsOfUnknownJobsAndHooksAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n, box := newCluster(t), newPipes(t), new(inbox)
		n.serve("a.test", box.answering(500))
		before := c.end("http://a.test/")
		c.do(&fsm.Archive{Items: []fsm.JobID{before}})
		c.die(fsm.DeadLetterWebhookNotification, fsm.DeadLetterCommandNotification) // without hooks
		totals, _ := c.lead(n, nil)
		synctest.Wait()
		if _, dropped := c.outcomes(); dropped != 3 || totals.Dropped.Load() != 3 {
			t.Errorf("%d dropped, want 3", dropped)
		}
		later := c.end("http://a.test/")
		synctest.Wait()
		c.do(&fsm.Archive{Items: []fsm.JobID{later}})
		<-time.After(time.Minute)
		if _, dropped := c.outcomes(); dropped != 4 || c.left() != 0 || len(box.all()) != 1 {
			t.Errorf("%d dropped, %d left, %d requests; want 4, 0, 1", dropped, c.left(), len(box.all()))
		}
	})
}

// A notification that a full queue displaced is counted there, and not delivered.
func TestARemovedNotificationIsNotDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n, box := newCluster(t), newPipes(t), new(inbox)
		n.serve("a.test", box.answering(500))
		c.end("http://a.test/")
		totals, _ := c.lead(n, nil)
		synctest.Wait()
		c.do(&fsm.RecordDelivered{Items: []fsm.Delivery{{Number: 1}}})
		<-time.After(time.Hour)
		if len(box.all()) != 1 || totals.Dropped.Load() != 0 || totals.Delivered.Load() != 0 {
			t.Errorf("%d requests, %d counted as dropped; want 1, 0", len(box.all()), totals.Dropped.Load())
		}
	})
}

func TestADeadLetterIsDeliveredWithPayloadAndHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, n, box := newCluster(t), newPipes(t), new(inbox)
		n.serve("letters.test", box.answering(200))
		id := c.die(fsm.DeadLetterWebhookNotification)
		c.lead(n, func(cfg *Config) { cfg.Hooks.DeadLetterWebhook = "http://letters.test/" })
		synctest.Wait()
		if len(box.all()) != 1 {
			t.Fatalf("%d requests", len(box.all()))
		}
		body := box.all()[0].body
		var e struct {
			Type string
			Data document.DeadLetterWithHistory
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Fatal(err)
		}
		l := e.Data
		if e.Type != "dead_letter" || l.ID != fmt.Sprintf("%d/fetch", id) || l.Type != "run" || l.Attempts != 1 || len(l.History) != 1 || l.History[0].Worker != "w1" || *l.DiedAt != *l.History[0].EndedAt {
			t.Errorf("body is %s", body)
		}
		if !strings.Contains(body, `"payload":{"n":1,"text":"<é>"}`) || !strings.Contains(body, `"exit code 1: <oops>"`) {
			t.Errorf("payload or error changed: %s", body)
		}
	})
}
