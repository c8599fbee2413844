package coordinator

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/dtask/dtask/fsm"
)

// maxHookBody bounds what a hook reads, in bytes.
const maxHookBody = 4 << 10

// testHooks damage this replica on purpose, so that tests can see whether it is
// noticed. They exist only if Config.TestHooks is set.
type testHooks struct {
	clock  *testClock
	faults *stepFaults
}

// useHooks puts the hooks where they act. It is called once, before anything
// else of the replica runs.
func (r *replica) useHooks() {
	if !r.cfg.TestHooks {
		return
	}
	r.log.Warn("test hooks are on: whoever reaches the HTTP port can damage this replica; never set DTASK_TEST_HOOKS outside of tests",
		"addresses", r.cfg.TestAddresses)
	r.hooks = &testHooks{clock: newTestClock(r.cfg.Wall), faults: newStepFaults()}
	r.cfg.Wall = r.hooks.clock.now
}

// serveHooks adds the hooks to what the HTTP port serves:
//
//	POST /test/flip?job=…&task=…              changes a field of the state
//	POST /test/clock {"offset_ms", …}         sets the wall clock, see clockSetting
//	POST /test/fail?step=…&how=…&times=…      makes a step of taking over fail, see stepFaults
//	GET  /test/fail                           how often each step has failed so
//	POST /test/snapshot                       takes a snapshot, if there is anything new
func (r *replica) serveHooks(rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", rest)
	mux.HandleFunc("POST /test/flip", r.flip)
	mux.HandleFunc("POST /test/clock", r.hooks.setClock)
	mux.HandleFunc("POST /test/fail", r.hooks.setFault)
	mux.HandleFunc("GET /test/fail", r.hooks.showFaults)
	mux.HandleFunc("POST /test/snapshot", r.takeSnapshot)
	return mux
}

func (r *replica) flip(w http.ResponseWriter, q *http.Request) {
	job, errJob := strconv.ParseUint(q.FormValue("job"), 10, 64)
	task, errTask := strconv.ParseUint(q.FormValue("task"), 10, 32)
	if errJob != nil || errTask != nil || !r.machine.Flip(fsm.TaskRef{Job: fsm.JobID(job), Index: uint32(task)}) {
		http.Error(w, "no such task", http.StatusNotFound)
		return
	}
}

func (r *replica) takeSnapshot(w http.ResponseWriter, q *http.Request) {
	node := r.node.Load()
	if node == nil {
		http.Error(w, "not part of a cluster yet", http.StatusServiceUnavailable)
		return
	}
	if err := node.Snapshot(q.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (h *testHooks) setClock(w http.ResponseWriter, q *http.Request) {
	var s clockSetting
	d := json.NewDecoder(io.LimitReader(q.Body, maxHookBody))
	d.DisallowUnknownFields()
	err := d.Decode(&s)
	if err == nil {
		err = h.clock.set(s)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
}

func (h *testHooks) setFault(w http.ResponseWriter, q *http.Request) {
	times := 1
	var err error
	if text := q.FormValue("times"); text != "" {
		times, err = strconv.Atoi(text)
	}
	if err = errors.Join(err, h.faults.set(q.FormValue("step"), q.FormValue("how"), times)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
}

func (h *testHooks) showFaults(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(h.faults.counts()) // the client has gone: nobody is left to tell
}
