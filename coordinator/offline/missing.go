package offline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// MissingReport lists the jobs of a directory that a serving cluster does not have.
type MissingReport struct {
	DataDir string `json:"data_dir"`
	// UpTo is the highest log index that its replica knew to be committed; 0 = unknown.
	UpTo uint64 `json:"up_to"`
	// LastIndex is the end of its log. Jobs of the entries after UpTo are unconfirmed.
	LastIndex uint64       `json:"last_index"`
	Compared  int          `json:"compared"` // jobs
	Missing   []MissingJob `json:"missing"`  // by number
	// Unread says which jobs may not be listed: those that had left the state for the
	// history before a snapshot with entries that the cluster does not have, and those of
	// unconfirmed entries that cannot be applied.
	Unread string `json:"unread,omitempty"`
}

// MissingJob is a job that is only in this directory.
type MissingJob struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Owner       string `json:"owner"`
	Key         string `json:"idempotency_key"`
	SubmittedAt string `json:"submitted_at"`
	TasksTotal  uint32 `json:"tasks_total"`
	State       string `json:"state"` // here
	// Unconfirmed reports that the replica had stored the job without learning whether it
	// was committed, so it may or may not have been acknowledged.
	Unconfirmed bool `json:"unconfirmed"`
	// Reused reports that the cluster has another job under this number.
	Reused bool `json:"id_reused"`
	// Updated reports that the job was updated after its submission; a file has it as
	// it was submitted.
	Updated bool   `json:"updated"`
	File    string `json:"file,omitempty"`    // that Export wrote
	Problem string `json:"problem,omitempty"` // why it cannot be exported

	spec *dtaskv1.JobSpec
}

// lookups is how many jobs are asked for at the same time.
const lookups = 32

// Missing lists the jobs of a stopped replica's directory that the cluster at any of
// the addresses does not have. It changes nothing in the directory.
func Missing(ctx context.Context, path string, addresses []string) (report *MissingReport, err error) {
	d, err := open(path)
	if d != nil {
		defer func() { err = errors.Join(err, d.Close()) }()
	}
	if err != nil {
		return nil, err
	}
	report, jobs, err := d.jobs()
	if err != nil {
		return nil, err
	}
	c, err := dialCluster(addresses)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	absent := make([]bool, len(jobs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lookups)
	for i := range jobs {
		group.Go(func() error {
			theirs, err := c.job(ctx, jobs[i].ID)
			absent[i], jobs[i].Reused = theirs == nil || !jobs[i].is(theirs), theirs != nil
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	report.Missing = []MissingJob{}
	for i, job := range jobs {
		if absent[i] {
			report.Missing = append(report.Missing, job.MissingJob)
		}
	}
	return report, nil
}

// localJob is a job of the directory.
type localJob struct {
	MissingJob

	submittedMS int64
	digest      [16]byte
}

// is reports whether a job of the cluster with the same number is this job: one that
// the same log entry has made.
func (j *localJob) is(theirs *dtaskv1.Job) bool {
	return j.Key == theirs.GetKey() && j.submittedMS == theirs.GetSubmittedAt() && j.Name == theirs.GetName() &&
		j.TasksTotal == theirs.GetTasksTotal() && bytes.Equal(j.digest[:], theirs.GetDigest())
}

// jobs returns all jobs of the directory. Those that the replica did not know to be
// committed are marked.
func (d *directory) jobs() (*MissingReport, []localJob, error) {
	conflict, committed, err := d.conflict()
	if err != nil {
		return nil, nil, err
	}
	byID, found, err := d.jobsUpTo(committed)
	if err != nil {
		return nil, nil, err
	}
	report := &MissingReport{DataDir: d.Path, UpTo: min(committed, found.Index), LastIndex: found.Index}
	var unread []string
	if conflict != nil && found.Snapshot >= conflict.Truncated {
		unread = append(unread, fmt.Sprintf("the snapshot at entry %d contains entries from %d on that the cluster replaced: "+
			"jobs that finished and left for the history between the two are not listed; they are in history.db of this directory",
			found.Snapshot, conflict.Truncated))
	}
	if report.UpTo < found.Index {
		all, _, err := d.jobsUpTo(math.MaxUint64)
		if halt, ok := errors.AsType[*raftnode.HaltError](err); ok {
			unread = append(unread, fmt.Sprintf("entries from %d on cannot be applied (%v): their jobs are not listed", halt.Index, halt.Err))
		} else if err != nil {
			return nil, nil, err
		}
		for id, job := range all {
			if _, known := byID[id]; !known {
				job.Unconfirmed = true
				byID[id] = job
			}
		}
	}
	report.Unread = strings.Join(unread, "; ")
	report.Compared = len(byID)
	jobs := make([]localJob, 0, len(byID))
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		jobs = append(jobs, byID[id])
	}
	return report, jobs, nil
}

// jobsUpTo returns the jobs that the entries up to an index contain, with their states
// there. It also returns those that it has read before an error.
func (d *directory) jobsUpTo(index uint64) (map[fsm.JobID]localJob, raftnode.Replayed, error) {
	left := archived{}
	machine, found, err := d.replay(left, index)
	jobs := make(map[fsm.JobID]localJob)
	machine.Read(func(s *fsm.State, _ uint64) {
		for job := range s.Jobs(0) {
			spec, err := s.Submitted(job.ID)
			jobs[job.ID] = localOf(job, spec, err)
		}
	})
	for id, job := range left {
		spec, err := job.Submitted()
		jobs[id] = localOf(job.Job(), spec, err)
	}
	return jobs, found, err
}

func localOf(job fsm.Job, spec *dtaskv1.JobSpec, err error) localJob {
	l := localJob{
		MissingJob: MissingJob{
			ID: strconv.FormatUint(uint64(job.ID), 10), Name: job.Header.GetName(), Owner: job.Header.GetOwner(), Key: fsm.PlainKey(job.Key),
			SubmittedAt: time.UnixMilli(job.SubmittedMS).UTC().Format(time.RFC3339Nano),
			TasksTotal:  job.Total, State: job.State.String(), Updated: job.Version > 1, spec: spec,
		},
		submittedMS: job.SubmittedMS, digest: job.Digest,
	}
	if err != nil {
		l.Problem = err.Error()
	}
	return l
}

// cluster is a client of a serving cluster.
type cluster struct {
	conns []*grpc.ClientConn
}

// lookupTimeout bounds one question to one replica.
const lookupTimeout = 5 * time.Second

func dialCluster(addresses []string) (*cluster, error) {
	c := new(cluster)
	for _, address := range addresses {
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig())
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connecting to %s: %w", address, err), c.close())
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

// job returns a job as a confirmed leader knows it; nil if the cluster does not have it.
func (c *cluster) job(ctx context.Context, id string) (*dtaskv1.Job, error) {
	var errs []error
	for _, conn := range c.conns {
		once, cancel := context.WithTimeout(ctx, lookupTimeout)
		job, err := dtaskv1.NewJobServiceClient(conn).GetJob(once, &dtaskv1.GetJobRequest{Id: id})
		cancel()
		switch {
		case err == nil:
			return job, nil
		case status.Code(err) == codes.NotFound:
			return nil, nil //nolint:nilnil // nil means none, as documented
		}
		errs = append(errs, fmt.Errorf("%s: %s", strings.TrimPrefix(conn.Target(), "passthrough:///"), status.Convert(err).Message()))
	}
	return nil, fmt.Errorf("looking up job %s: no leader answered; list all coordinators of the serving cluster: %w", id, errors.Join(errs...))
}

func (c *cluster) close() error {
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
