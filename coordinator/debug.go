package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/telemetry"
)

// maxDetailedStacks is up to how many goroutines a debug bundle has each stack by itself,
// with the time for which it has waited. More of them would stop the process for longer
// than a leader's lease; then equal stacks are counted.
const maxDetailedStacks = 2_000

// debugFiles calls file for each file of a debug bundle. None of them has payloads,
// results, secrets or keys: settings are without secrets, and profiles have only names of
// functions.
func (r *replica) debugFiles(ctx context.Context, profile time.Duration, file api.DebugFile) error {
	files := []struct {
		name  string
		write func(io.Writer) error
	}{
		{"status.json", r.debugStatus},
		{"settings.json", func(w io.Writer) error { return writeJSON(w, r.cfg.Settings) }},
		{"metrics.txt", r.debugMetrics},
		{"goroutines.txt", debugGoroutines},
		{"heap.pb.gz", writeHeap},
		{"log.txt", r.debugLog},
		{"cpu.pb.gz", func(w io.Writer) error { return debugCPU(ctx, profile, w) }},
	}
	for _, f := range files {
		if f.name == "cpu.pb.gz" && profile == 0 {
			continue
		}
		if err := file(f.name, f.write); err != nil {
			return err
		}
	}
	return nil
}

// debugStatus is what a replica knows of itself.
type debugStatus struct {
	ServerID   string            `json:"server_id"`
	ClusterID  string            `json:"cluster_id"`
	Version    string            `json:"version"`
	Go         string            `json:"go"`
	Platform   string            `json:"platform"`
	CPUs       int               `json:"cpus"`
	PID        int               `json:"pid"`
	At         time.Time         `json:"at"`
	Uptime     float64           `json:"uptime_seconds"`
	Goroutines int               `json:"goroutines"`
	Raft       *debugRaft        `json:"raft"` // null: Raft does not run
	Applied    uint64            `json:"applied"`
	Level      uint32            `json:"level"`
	Jobs       map[string]uint64 `json:"jobs"`  // of the state, by their state
	Tasks      map[string]uint64 `json:"tasks"` // of these jobs
	Alarms     []debugAlarm      `json:"alarms"`
	Members    []debugMember     `json:"members"`
}

type debugRaft struct {
	State       string    `json:"state"`
	Term        uint64    `json:"term"`
	Leader      string    `json:"leader"`
	LastIndex   uint64    `json:"last_index"`
	CommitIndex uint64    `json:"commit_index"`
	LastContact time.Time `json:"last_contact"` // with the leader, by this replica's clock
}

type debugAlarm struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

type debugMember struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Voter   bool   `json:"voter"`
}

func (r *replica) debugStatus(w io.Writer) error {
	doc := debugStatus{
		ServerID: r.dir.serverID, ClusterID: r.clusterID(), Version: r.cfg.Version, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0), PID: os.Getpid(),
		At: r.cfg.Wall().UTC(), Uptime: time.Since(r.started).Seconds(), Goroutines: runtime.NumGoroutine(),
		Jobs: map[string]uint64{}, Tasks: map[string]uint64{}, Alarms: []debugAlarm{}, Members: []debugMember{},
	}
	var st *fsm.State
	st, doc.Applied = r.machine.Fork()
	doc.Level = uint32(st.Level())
	jobs, tasks := st.CountByState()
	for state, n := range jobs {
		doc.Jobs[state.String()] = n
	}
	for state, n := range tasks {
		doc.Tasks[state.String()] = n
	}
	if node := r.node.Load(); node != nil {
		leader, _ := node.Leader()
		doc.Raft = &debugRaft{
			State: node.State(), Term: node.Term(), Leader: leader, LastIndex: node.LastIndex(), CommitIndex: node.CommitIndex(),
			LastContact: node.LastContact().UTC(),
		}
	}
	for _, a := range r.currentAlarms() {
		doc.Alarms = append(doc.Alarms, debugAlarm{a.GetKind(), a.GetMessage()})
	}
	for _, m := range r.servers() {
		doc.Members = append(doc.Members, debugMember{m.ID, m.Address, m.Voter})
	}
	return writeJSON(w, doc)
}

func writeJSON(w io.Writer, doc any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(doc); err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	return nil
}

// debugMetrics writes what /metrics serves, also without a port for it.
func (r *replica) debugMetrics(w io.Writer) error {
	return telemetry.WriteMetrics(w, r.registry())
}

func (r *replica) debugLog(w io.Writer) error {
	if r.cfg.LogTail == nil {
		return nil
	}
	_, err := w.Write(r.cfg.LogTail())
	return err
}

func debugGoroutines(w io.Writer) error {
	const separate, counted = 2, 1
	form := separate
	if runtime.NumGoroutine() > maxDetailedStacks {
		form = counted
	}
	return pprof.Lookup("goroutine").WriteTo(w, form)
}

// debugCPU writes a CPU profile. A process has one at a time.
func debugCPU(ctx context.Context, profile time.Duration, w io.Writer) error {
	var b bytes.Buffer // the profile is written by a goroutine of its own
	if err := pprof.StartCPUProfile(&b); err != nil {
		return fmt.Errorf("starting the CPU profile: %w", err)
	}
	timer := time.NewTimer(profile)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	pprof.StopCPUProfile()
	_, err := b.WriteTo(w)
	return err
}

// writeHeap writes a profile of the heap after a collection. The profile is as of the last
// one, which on an idle coordinator may be old.
func writeHeap(w io.Writer) error {
	runtime.GC()
	return pprof.Lookup("heap").WriteTo(w, 0)
}
