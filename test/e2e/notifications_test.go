package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/programfile"
)

// delivery is one delivered notification.
type delivery struct {
	Type string         `json:"type"`
	Data map[string]any `json:"data"`
}

// receiver accepts notifications of jobs and dead letters after rise.
type receiver struct {
	*httptest.Server

	key []byte

	mu     sync.Mutex // guards the fields below
	up     bool
	told   map[string]delivery // by webhook-id, while up
	tried  map[string]int      // number of tries
	faults []string
}

func newReceiver(t *testing.T, key []byte) *receiver {
	t.Helper()
	r := &receiver{key: key, told: map[string]delivery{}, tried: map[string]int{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // its sender was killed and reads no answer
	}
	id := q.Header.Get("webhook-id")
	mac := hmac.New(sha256.New, r.key)
	fmt.Fprintf(mac, "%s.%s.%s", id, q.Header.Get("webhook-timestamp"), body)
	var n delivery
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.Header.Get("webhook-signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
		r.faults = append(r.faults, "invalid signature")
	}
	if err := json.Unmarshal(body, &n); err != nil {
		r.faults = append(r.faults, fmt.Sprintf("body %q: %v", body, err))
	}
	r.tried[id]++
	if !r.up {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.told[id] = n
}

// rise makes the receiver accept deliveries.
func (r *receiver) rise() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.up = true
}

// await waits until enough events were delivered or tried.
func (r *receiver) await(t *testing.T, what string, enough func() error) {
	t.Helper()
	clustertest.Must(t, cluster.Until(t.Context(), what, guard, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return enough()
	}))
}

// of returns the deliveries of one kind.
func (r *receiver) of(kind string) []map[string]any {
	var list []map[string]any
	for _, n := range r.told {
		if n.Type == kind {
			list = append(list, n.Data)
		}
	}
	return list
}

// wants checks the number of deliveries of each kind.
func (r *receiver) wants(kinds map[string]int) func() error {
	return func() error {
		got := map[string]int{}
		for _, n := range r.told {
			got[n.Type]++
		}
		if !maps.Equal(got, kinds) {
			return fmt.Errorf("told %v, want %v", got, kinds)
		}
		return nil
	}
}

func TestNotificationsAreDeliveredAlthoughTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := []byte("0123456789abcdefghijklmnopqrstuv")
	secret, script, letters := filepath.Join(dir, "secret"), filepath.Join(dir, "hook"), filepath.Join(dir, "letters")
	clustertest.Must(t, os.WriteFile(secret, []byte("whsec_"+base64.StdEncoding.EncodeToString(key)+"\n"), 0o600))
	programfile.Write(t, script, "#!/bin/sh\n[ -e "+dir+"/up ] || exit 1\ncat > "+letters+".$$ && mv "+letters+".$$ "+letters+"\n", 0o700)
	r := newReceiver(t, key)
	c := clustertest.Start(t, cluster.Config{Workers: 1, CoordinatorFlags: []string{
		"--dead-letter-webhook", r.URL + "/dead", "--dead-letter-command", script, "--webhook-secret-file", secret,
	}})
	job := func(name string, task cluster.TaskFile) string {
		return cluster.JobFileWith(map[string]any{"name": name, "webhook": r.URL + "/ended"}, task)
	}
	dies := cluster.TaskFile{
		"id": "dies", "run": "echo no such file >&2; test -e " + dir + "/healed", "payload": map[string]any{"n": 1},
		"retry": map[string]any{"max": 1, "initial": "10ms"},
	}
	good := clustertest.Submit(t, c.Ctl, job("good", cluster.Builtin("one", "echo", "1")))
	bad := clustertest.Submit(t, c.Ctl, job("bad", dies))
	completed(t, c.Ctl, good)
	if end, err := c.AwaitEnd(t.Context(), bad, guard); err != nil || end.State != "failed" {
		t.Fatalf("job %s: got %s, %v", bad, end.State, err)
	}
	r.await(t, "a try of each notification", func() error {
		if len(r.tried) < 3 {
			return fmt.Errorf("%d were attempted", len(r.tried))
		}
		return nil
	})
	leader := clustertest.Leader(t, c)
	clustertest.Must(t, leader.Kill())
	r.rise()
	clustertest.Must(t, os.WriteFile(filepath.Join(dir, "up"), nil, 0o600))
	r.await(t, "everything is delivered", r.wants(map[string]int{"job.completed": 1, "job.failed": 1, "dead_letter": 1}))
	clustertest.Must(t, cluster.Until(t.Context(), "the command was run", guard, func(context.Context) error {
		_, err := os.Stat(letters)
		return err
	}))
	compareNotices(t, c, r, letters, good, bad)

	// The job continues, ends again, and is reported again.
	clustertest.Must(t, os.WriteFile(filepath.Join(dir, "healed"), nil, 0o600))
	if a := c.Run(t.Context(), "dlq", "requeue", "--type", "run", "-o", "json"); a.Err() != nil || !strings.Contains(a.Stdout, `"requeued": 1`) && !strings.Contains(a.Stdout, `"requeued":1`) {
		t.Fatalf("requeue by type: %v", a)
	}
	completed(t, c.Ctl, bad)
	r.await(t, "the second end is delivered", r.wants(map[string]int{"job.completed": 2, "job.failed": 1, "dead_letter": 1}))
	for _, fault := range r.faults {
		t.Error(fault)
	}
}

// compareNotices compares the deliveries with the output of dtaskctl.
func compareNotices(t *testing.T, c *cluster.Cluster, r *receiver, letters, good, bad string) {
	t.Helper()
	shown := func(args ...string) map[string]any {
		a := c.Run(t.Context(), append(args, "-o", "json")...)
		document := map[string]any{}
		if err := a.Into(&document); err != nil {
			t.Fatal(err)
		}
		delete(document, "tasks")
		return document
	}
	text, err := os.ReadFile(letters)
	clustertest.Must(t, err)
	var run delivery
	clustertest.Must(t, json.Unmarshal(text, &run))
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, pair := range map[string][2]map[string]any{
		"the job that completed":      {r.of("job.completed")[0], shown("status", good)},
		"the job that failed":         {r.of("job.failed")[0], shown("status", bad)},
		"the dead letter":             {r.of("dead_letter")[0], shown("dlq", "show", bad+"/dies")},
		"the dead letter, by command": {run.Data, shown("dlq", "show", bad+"/dies")},
		"the command's type, again":   {{"type": run.Type}, {"type": "dead_letter"}},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: got delivery %v, want %v as in dtaskctl", what, pair[0], pair[1])
		}
	}
}
