package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/fsm"
)

// Environment variables of a coordinator with fault switches.
const (
	// AddressesVariable holds ADDRESS=ADDRESS pairs, separated by commas: this
	// replica dials the second one instead of the first. Each direction between
	// two replicas can be broken on its own that way.
	AddressesVariable = "DTASK_FAULT_ADDRESSES"
	// TrailingLogsVariable holds the number of entries that stay behind a
	// snapshot. With few of them a replica that was away needs a snapshot.
	TrailingLogsVariable = "DTASK_FAULT_TRAILING_LOGS"
	// MaxLevelVariable holds the highest feature level that the replica supports, as one
	// of a later build would.
	MaxLevelVariable = "DTASK_FAULT_MAX_LEVEL"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 4 << 10

// switches are the fault switches of one replica.
type switches struct {
	clock *clock
	steps *stepFaults
}

// Install puts the fault switches into a configuration. lookup is os.LookupEnv.
func Install(cfg *coordinator.Config, lookup func(name string) (value string, ok bool)) error {
	wall := cfg.Wall
	if wall == nil {
		wall = time.Now
	}
	s := switches{clock: newClock(wall), steps: newStepFaults()}
	cfg.Wall = s.clock.now
	cfg.Seams.HTTP = s.serve
	cfg.Seams.Raft = s.steps.raft
	cfg.Seams.Duty = s.steps.duty
	cfg.Seams.Log = s.steps.log
	if text, ok := lookup(TrailingLogsVariable); ok {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", TrailingLogsVariable, err)
		}
		cfg.TrailingLogs = n
	}
	if text, ok := lookup(MaxLevelVariable); ok {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return fmt.Errorf("%s: %w", MaxLevelVariable, err)
		}
		cfg.Seams.MaxLevel = fsm.Level(n)
	}
	routes := make(network)
	if text, ok := lookup(AddressesVariable); ok {
		for pair := range strings.SplitSeq(text, ",") {
			address, route, ok := strings.Cut(pair, "=")
			if !ok {
				return fmt.Errorf("invalid %s %q: must be ADDRESS=ADDRESS", AddressesVariable, pair)
			}
			routes[address] = route
		}
		cfg.Seams.Network = routes
	}
	cfg.Logger.Warn("fault switches installed: requests to --http can damage this replica", "routes", len(routes))
	return nil
}

// network is TCP with other routes to some addresses.
type network map[string]string

// Listen implements coordinator.Network.
func (network) Listen(ctx context.Context, address string) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
}

// Dial implements coordinator.Network.
func (n network) Dial(ctx context.Context, address string) (net.Conn, error) {
	if route, ok := n[address]; ok {
		address = route
	}
	return transport.DialTCP(ctx, address)
}

// serve adds the switches to the handler of the HTTP port.
func (s switches) serve(next http.Handler, replica coordinator.Internals) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.HandleFunc("POST /test/flip", func(w http.ResponseWriter, q *http.Request) { flip(w, q, replica.Machine) })
	mux.HandleFunc("POST /test/clock", s.setClock)
	mux.HandleFunc("POST /test/fail", s.setFault)
	mux.HandleFunc("GET /test/fail", s.showFaults)
	mux.HandleFunc("POST /test/snapshot", func(w http.ResponseWriter, q *http.Request) {
		if err := replica.Snapshot(q.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	})
	return mux
}

func flip(w http.ResponseWriter, q *http.Request, machine *fsm.Machine) {
	job, errJob := strconv.ParseUint(q.FormValue("job"), 10, 64)
	task, errTask := strconv.ParseUint(q.FormValue("task"), 10, 32)
	if errJob != nil || errTask != nil || !machine.Flip(fsm.TaskRef{Job: fsm.JobID(job), Index: uint32(task)}) {
		http.Error(w, "unknown task", http.StatusNotFound)
		return
	}
}

func (s switches) setClock(w http.ResponseWriter, q *http.Request) {
	var setting clockSetting
	d := json.NewDecoder(io.LimitReader(q.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(&setting)
	if err == nil {
		err = s.clock.set(setting)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
}

func (s switches) setFault(w http.ResponseWriter, q *http.Request) {
	times := 1
	var err error
	if text := q.FormValue("times"); text != "" {
		times, err = strconv.Atoi(text)
	}
	if err = errors.Join(err, s.steps.set(q.FormValue("step"), q.FormValue("how"), times)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
}

func (s switches) showFaults(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.steps.counts()) // an error means that the client has gone
}
