package offline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/durable"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// historyName is the history's file in a data directory.
const historyName = "history.db"

// aliveTimeout is how long the other members may take to answer before they count as
// stopped.
const aliveTimeout = time.Second

// RecoverConfig is what Recover needs. Everything but DataDir and Lost is optional.
type RecoverConfig struct {
	DataDir string
	// Lost are the server ids of the members that are abandoned.
	Lost []string
	// Address is HOST:PORT that other replicas dial; default: as before.
	Address string
	// Than are reports of other survivors, as Inspect returns them, in JSON.
	Than [][]byte
	// KeepAtMostOnce leaves at-most-once tasks that have not ended as they are, although
	// they may have started. Otherwise they end as lost.
	KeepAtMostOnce bool
	Logger         *slog.Logger
}

// Plan is what Recover keeps and loses. Its JSON form is part of the stable surface.
type Plan struct {
	DataDir    string   `json:"data_dir"`
	OldCluster string   `json:"old_cluster_id"`
	NewCluster string   `json:"new_cluster_id"`
	Server     Member   `json:"server"` // the only member
	Lost       []Member `json:"lost"`
	LastIndex  uint64   `json:"last_index"` // the last entry that is kept
	LastTerm   uint64   `json:"last_term"`
	Jobs       int      `json:"jobs"` // in the state; all of them are kept
	Epoch      uint64   `json:"epoch"`
	// LostTasks are at-most-once tasks that end as lost, as JOB/TASK.
	LostTasks []string          `json:"lost_tasks"`
	Conflict  *datadir.Conflict `json:"conflict"` // null = none
	// KeptAs is where the old directory is; empty before Recover ran.
	KeptAs string `json:"kept_as,omitempty"`
	// Leftover are directories of earlier recoveries that were interrupted.
	Leftover []string `json:"leftover"`

	cfg     RecoverConfig
	machine *fsm.Machine // of the plan; Recover makes its own
	found   raftnode.Replayed
	dir     *directory
}

// RefusedError is why a directory is not recovered. Nothing was changed.
type RefusedError struct{ Reason string }

// Error implements error.
func (e *RefusedError) Error() string { return e.Reason }

func refused(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// PlanRecovery reads a directory and returns what Recover would do. The directory stays
// locked until Close.
func PlanRecovery(ctx context.Context, cfg RecoverConfig) (plan *Plan, err error) {
	if datadir.IsQuarantined(cfg.DataDir) {
		return nil, refused("%s is quarantined: it may be damaged or outdated; recover another replica's directory", cfg.DataDir)
	}
	d, err := open(cfg.DataDir)
	if d != nil {
		defer func() {
			if err != nil {
				err = errors.Join(err, d.Close())
			}
		}()
	}
	if err != nil {
		return nil, err
	}
	p := &Plan{DataDir: d.Path, OldCluster: d.Identity.ClusterID, Lost: []Member{}, LostTasks: []string{}, Leftover: []string{}, cfg: cfg, dir: d}
	if p.OldCluster == "" {
		return nil, refused("%s belongs to no cluster yet: start the replica with an empty --data-dir", d.Path)
	}
	if p.Conflict, _, err = d.conflict(); err != nil {
		return nil, err
	}
	if p.machine, p.found, err = d.replay(archived{}, math.MaxUint64); err != nil {
		return nil, err
	}
	if err := p.choose(); err != nil {
		return nil, err
	}
	if err := p.compare(); err != nil {
		return nil, err
	}
	if err := p.checkStopped(ctx); err != nil {
		return nil, err
	}
	err = p.preview()
	return p, err
}

// Close unlocks the directory.
func (p *Plan) Close() error { return p.dir.Close() }

// choose checks the lost members against the last configuration.
func (p *Plan) choose() error {
	self := p.dir.Identity
	voters, remaining := 0, 0
	for _, m := range p.found.Servers {
		lost := slices.Contains(p.cfg.Lost, m.ID)
		if m.Voter {
			voters++
		}
		switch {
		case m.ID == self.ServerID && lost:
			return refused("--lost names %s itself, whose directory this is", m.ID)
		case m.ID == self.ServerID:
			p.Server = Member{ID: self.Base(), Address: m.Address, Voter: true}
		case lost:
			p.Lost = append(p.Lost, Member(m))
		}
		if m.Voter && !lost {
			remaining++
		}
	}
	switch {
	case p.Server.ID == "":
		return refused("server %s is not a member in its last configuration (entry %d): recover a member's directory", self.ServerID, p.found.Configured)
	case len(p.Lost) < len(p.cfg.Lost):
		return refused("--lost names %s, but the members are %s", strings.Join(p.cfg.Lost, ","), describeServers(p.found.Servers))
	case remaining > voters/2 && voters > 1:
		return refused("without %s, %d of %d voters remain, which is a majority: start them instead; "+
			"to give up a majority that runs, list all of its members in --lost", orNone(p.cfg.Lost), remaining, voters)
	}
	if p.cfg.Address != "" {
		p.Server.Address = p.cfg.Address
	}
	return nil
}

func orNone(ids []string) string {
	if len(ids) == 0 {
		return "any lost member"
	}
	return strings.Join(ids, ",")
}

func describeServers(servers []raftnode.Server) string {
	var list []string
	for _, s := range servers {
		list = append(list, s.ID)
	}
	return strings.Join(list, ",")
}

// compare refuses if another survivor is further ahead.
func (p *Plan) compare() error {
	for _, text := range p.cfg.Than {
		var other Report
		if err := json.Unmarshal(text, &other); err != nil || other.ServerID == "" {
			return refused("--than: not the output of dtaskd inspect -o json: %v", err)
		}
		if other.ClusterID != p.OldCluster {
			return refused("--than: server %s belongs to cluster %s, not to %s", other.ServerID, other.ClusterID, p.OldCluster)
		}
		if other.LastTerm > p.found.Term || other.LastTerm == p.found.Term && other.LastIndex > p.found.Index {
			return refused("server %s is further ahead: its last entry is %d of term %d, here %d of term %d; recover that directory",
				other.ServerID, other.LastIndex, other.LastTerm, p.found.Index, p.found.Term)
		}
	}
	return nil
}

// checkStopped refuses while another member of the old cluster answers: two clusters
// would serve at the same time.
func (p *Plan) checkStopped(ctx context.Context) error {
	peers := membership.NewPeers(func(ctx context.Context, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	})
	answers := peers.IdentifyAll(ctx, p.found.Servers, p.dir.Identity.ServerID, aliveTimeout)
	secured := p.findSecured(ctx, peers, answers)
	if err := peers.Close(); err != nil {
		return err
	}
	if secured != "" {
		return refused("a dtaskd with TLS still runs at %s: stop it first, or two clusters would serve at the same time", secured)
	}
	for i, a := range answers {
		if a.GetClusterId() == p.OldCluster {
			return refused("server %s still runs at %s: stop it first, or two clusters would serve at the same time", a.GetServerId(), p.found.Servers[i].Address)
		}
	}
	return nil
}

// findSecured returns the address of a member that did not identify itself because it
// speaks TLS only; this command has no certificate.
func (p *Plan) findSecured(ctx context.Context, peers *membership.Peers, answers []*dtaskv1.IdentifyResponse) string {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	for i, server := range p.found.Servers {
		if answers[i] != nil || server.ID == p.dir.Identity.ServerID {
			continue
		}
		if _, err := peers.Identify(ctx, server.Address); status.Code(err) == codes.Unauthenticated {
			return server.Address
		}
	}
	return ""
}

// preview fills in what the recovery changes.
func (p *Plan) preview() (err error) {
	p.LastIndex, p.LastTerm = p.found.Index, p.found.Term
	p.NewCluster = datadir.NewIdentity("", "").Instance // 128 random bits
	_, lost := p.machine.Recover(fsm.Recovery{ClusterID: p.NewCluster, Server: p.Server.ID, KeepAtMostOnce: p.cfg.KeepAtMostOnce})
	p.machine.Read(func(s *fsm.State, _ uint64) {
		p.Epoch = s.Epoch()
		for range s.Jobs(0) {
			p.Jobs++
		}
		for _, t := range lost {
			p.LostTasks = append(p.LostTasks, fmt.Sprintf("%d/%s", t.Job, s.Name(t)))
		}
	})
	p.machine = nil
	leftover, err := filepath.Glob(p.DataDir + recoveredMark + "*")
	p.Leftover = append(p.Leftover, leftover...)
	return err
}

// Marks in the names of directories beside a data directory.
const (
	recoveredMark = ".recovered-" // being built, or the old one after a crash between the two renames
	replacedMark  = ".replaced-"  // the old directory
)

// Recover replaces the directory by that of a new cluster with the same state, whose
// only member is this server. A crash leaves the old or the new directory; the other
// one stays beside it.
func (p *Plan) Recover(now time.Time) error {
	stamp := now.UTC().Format("20060102T150405.000Z")
	fresh := p.DataDir + recoveredMark + stamp
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return fmt.Errorf("creating the new data directory: %w", err)
	}
	if err := p.build(fresh); err != nil {
		return errors.Join(fmt.Errorf("building the new data directory: %w", err), os.RemoveAll(fresh))
	}
	parent := filepath.Dir(p.DataDir)
	if err := durable.SyncDir(parent); err != nil {
		return err
	}
	if err := exchange(fresh, p.DataDir); err != nil {
		return errors.Join(fmt.Errorf("putting the new data directory into place (a mount point cannot be replaced; "+
			"copy its content into a directory and recover that): %w", err), os.RemoveAll(fresh))
	}
	p.KeptAs = fresh // the old one now
	if err := durable.SyncDir(parent); err != nil {
		return err
	}
	kept := p.DataDir + replacedMark + stamp
	if err := os.Rename(fresh, kept); err != nil {
		return fmt.Errorf("renaming the old data directory: %w", err)
	}
	p.KeptAs = kept
	return durable.SyncDir(parent)
}

// build writes the new directory. identity.json is last: without it the directory is
// incomplete.
func (p *Plan) build(dir string) error {
	id := datadir.NewIdentity(p.Server.ID, p.NewCluster)
	for _, name := range []string{historyName, historyName + history.ImportSuffix} {
		if err := copyFile(filepath.Join(p.DataDir, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	h, err := history.Open(history.Config{
		Path: filepath.Join(dir, historyName), Logger: p.cfg.Logger, MaxJobs: math.MaxUint64, MaxBytes: math.MaxUint64,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1) // size 1: the receive below may follow an error
	go func() { done <- h.Run(ctx) }()
	machine, index, err := p.rebuild(ctx, h, id)
	cancel()
	if err = errors.Join(err, <-done); err != nil {
		return err
	}
	if err := raftnode.Found(raftnode.Founding{
		Dir: dir, Kind: p.dir.log.Kind(), Server: raftnode.Server{ID: p.Server.ID, Address: p.Server.Address, Voter: true},
		Index: index, Term: p.term() + 1, Snapshot: machine.Snapshot(),
	}); err != nil {
		return err
	}
	return complete(dir, id, index)
}

// complete makes a directory usable whose log ends at an index. No other replica has
// entries of the new cluster: like after an orderly stop, this one doesn't wait for those
// that its command line names.
func complete(dir string, id datadir.Identity, index uint64) error {
	if err := datadir.MarkStopped(dir, index); err != nil {
		return err
	}
	return datadir.Create(dir, id)
}

// rebuild replays the log with the new directory's history, which has all that left the
// state when it returns, and recovers the state.
func (p *Plan) rebuild(ctx context.Context, h *history.History, id datadir.Identity) (machine *fsm.Machine, index uint64, err error) {
	if machine, _, err = p.dir.replay(h, math.MaxUint64); err != nil {
		return nil, 0, err
	}
	index, _ = machine.Recover(fsm.Recovery{
		ClusterID: p.NewCluster, Server: p.Server.ID, Instance: id.Instance, KeepAtMostOnce: p.cfg.KeepAtMostOnce,
	})
	h.Take(index, new(fsm.ArchiveBatch)) // nothing left between the old index and the new one
	return machine, index, h.Sync(ctx, index)
}

// term returns the highest term that the directory knows.
func (p *Plan) term() uint64 {
	term, vote, _, _ := p.dir.log.Term() // the stores were read before
	return max(term, vote, p.found.Term)
}

// copyFile copies a file, durably. A missing one is not an error.
func copyFile(from, to string) error {
	in, err := os.Open(from) //nolint:gosec // the operator names the directory
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()                                     // read only
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // in a new directory
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copying %s: %w", filepath.Base(from), err)
	}
	return nil
}
