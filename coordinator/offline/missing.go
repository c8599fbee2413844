package offline

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
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

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// MissingReport lists the jobs of a directory that a serving cluster does not have.
type MissingReport struct {
	DataDir string `json:"data_dir"`
	// UpTo is the log index up to which the directory was read: the highest index that
	// its replica knew to be committed, or the end of its log.
	UpTo     uint64       `json:"up_to"`
	Compared int          `json:"compared"` // jobs
	Missing  []MissingJob `json:"missing"`  // by number
	// Unread is set if the directory has a snapshot with entries that the cluster does
	// not have: jobs that had left the state for the history before it are not listed.
	Unread string `json:"unread,omitempty"`
}

// MissingJob is a job that was acknowledged and is only in this directory.
type MissingJob struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Owner       string `json:"owner"`
	Key         string `json:"idempotency_key"`
	SubmittedAt string `json:"submitted_at"`
	TasksTotal  uint32 `json:"tasks_total"`
	State       string `json:"state"` // here
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
	report, jobs, err := d.acknowledged()
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

// acknowledged returns the jobs that the replica knew to be committed.
func (d *directory) acknowledged() (*MissingReport, []localJob, error) {
	report := &MissingReport{DataDir: d.Path, UpTo: math.MaxUint64}
	conflict, committed, err := d.conflict()
	if err != nil {
		return nil, nil, err
	}
	if committed > 0 {
		report.UpTo = committed
	}
	left := archived{}
	machine, found, err := d.replay(left, report.UpTo)
	if err != nil {
		return nil, nil, err
	}
	report.UpTo = min(report.UpTo, found.Index)
	if conflict != nil && found.Snapshot >= conflict.Truncated {
		report.Unread = fmt.Sprintf("the snapshot at entry %d contains entries from %d on that the cluster replaced: "+
			"jobs that finished and left for the history between the two are not listed; they are in history.db of this directory",
			found.Snapshot, conflict.Truncated)
	}
	var jobs []localJob
	add := func(job fsm.Job, spec *dtaskv1.JobSpec, specErr error) {
		jobs = append(jobs, localOf(job, spec, specErr))
	}
	machine.Read(func(s *fsm.State, _ uint64) {
		for job := range s.Jobs(0) {
			spec, err := s.Submitted(job.ID)
			add(job, spec, err)
		}
	})
	for _, job := range left {
		spec, err := job.Submitted()
		add(job.Job(), spec, err)
	}
	slices.SortFunc(jobs, func(a, b localJob) int {
		return cmp.Or(cmp.Compare(len(a.ID), len(b.ID)), strings.Compare(a.ID, b.ID))
	})
	report.Compared = len(jobs)
	return report, jobs, nil
}

func localOf(job fsm.Job, spec *dtaskv1.JobSpec, err error) localJob {
	l := localJob{
		MissingJob: MissingJob{
			ID: strconv.FormatUint(uint64(job.ID), 10), Name: job.Header.GetName(), Owner: job.Header.GetOwner(), Key: job.Key,
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
