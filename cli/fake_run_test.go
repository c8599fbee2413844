package cli

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/internal/array"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// expanded returns tasks with one for each index of an array.
func expanded(tasks []*dtaskv1.TaskSpec) []*dtaskv1.TaskSpec {
	var all []*dtaskv1.TaskSpec
	for _, t := range tasks {
		if t.GetArray() == nil {
			all = append(all, t)
			continue
		}
		for i := range array.Tasks(t) {
			all = append(all, &dtaskv1.TaskSpec{Id: fmt.Sprintf("%s[%d]", t.GetId(), i)})
		}
	}
	return all
}

// An ending is how the tasks of a job with a certain name end.
type ending struct {
	state dtaskv1.TaskState
	err   string
}

// endings are those of `run`, by the name of the job. Other jobs complete.
var endings = map[string]ending{
	"exits":     {dtaskv1.TaskState_TASK_STATE_FAILED, "exit code 3: curl: 404"},
	"usage":     {dtaskv1.TaskState_TASK_STATE_FAILED, "exit code 2"},
	"exhausted": {dtaskv1.TaskState_TASK_STATE_DEAD, "exit code 75 (temporary): curl: 404"},
	"killed":    {dtaskv1.TaskState_TASK_STATE_FAILED, "killed by SIGKILL, probably out of memory"},
	"late":      {dtaskv1.TaskState_TASK_STATE_FAILED, "timeout: running for more than 1s"},
	"missing":   {dtaskv1.TaskState_TASK_STATE_FAILED, "starting nope: program not found in PATH"},
	"lost":      {dtaskv1.TaskState_TASK_STATE_LOST, "worker lost during the attempt"},
	"cancelled": {dtaskv1.TaskState_TASK_STATE_CANCELLED, "exit code 3 (the reason that the user gave)"},
}

// endAs ends a job of `run` as its name says.
func (j *fakeJob) endAs(name string) {
	switch name {
	case "sweep": // the second and the third task fail
		for i, t := range j.tasks[1:3] {
			t.State, t.Error = dtaskv1.TaskState_TASK_STATE_FAILED, fmt.Sprintf("exit code %d", 4+i)
		}
		j.job.State, j.job.TasksFailed, j.job.TasksCompleted = dtaskv1.JobState_JOB_STATE_FAILED, 2, j.job.GetTasksTotal()-2
	case "skipped":
		const why = "skipped: needed job 43 completed"
		j.tasks[0].State, j.tasks[0].Error, j.tasks[0].Attempt = dtaskv1.TaskState_TASK_STATE_CANCELLED, why, 0
		j.job.TasksCompleted, j.job.Error = 0, why
	case "lines":
		j.output = unfinishedLines
	case "expired", "expired-exits":
		j.output = expiredLog
	}
	e, ok := endings[name]
	if name == "expired-exits" {
		e, ok = endings["exits"], true
	}
	if !ok {
		return
	}
	j.tasks[0].State, j.tasks[0].Error = e.state, e.err
	j.job.State, j.job.TasksFailed, j.job.TasksCompleted = dtaskv1.JobState_JOB_STATE_FAILED, 1, 0
	if e.state == dtaskv1.TaskState_TASK_STATE_CANCELLED {
		j.job.State, j.job.TasksFailed, j.job.Error = dtaskv1.JobState_JOB_STATE_CANCELLED, 0, "wrong input"
	}
}

func outputPiece(offset uint64, text string) *dtaskv1.LogsResponse {
	return &dtaskv1.LogsResponse{Pieces: []*dtaskv1.LogPiece{{Stream: dtaskv1.LogStream_LOG_STREAM_STDOUT, Offset: offset, Data: []byte(text)}}}
}

// unfinishedLines sends lines in pieces, the last one without an end.
func unfinishedLines(_ *dtaskv1.LogsRequest, s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
	offset := uint64(0)
	for _, piece := range []string{"a", "b\nc\n\nd", "e\nf"} {
		if err := s.Send(outputPiece(offset, piece)); err != nil {
			return err
		}
		offset += uint64(len(piece))
	}
	return nil
}

// expiredLog sends the begin of an output whose rest is gone.
func expiredLog(_ *dtaskv1.LogsRequest, s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
	if err := s.Send(outputPiece(0, "begin\n")); err != nil {
		return err
	}
	return refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, "worker with the logs is not connected")
}
