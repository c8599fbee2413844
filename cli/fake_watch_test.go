package cli

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// watchTasks is a watch of a job that was running at index 7 and finished at index
// 9. Changes before 7 are compacted. The stream of a job that runs stays open.
func watchTasks(r *dtaskv1.WatchJobRequest, s grpc.ServerStreamingServer[dtaskv1.WatchJobResponse], first *dtaskv1.Job, j *fakeJob) error {
	switch from := r.GetFromIndex(); {
	case from > 0 && from < 7:
		return refusal(codes.OutOfRange, dtaskv1.ErrorReason_ERROR_REASON_COMPACTED, "changes before index 7 are compacted")
	case from == 0:
		var tasks []*dtaskv1.Task
		for _, t := range j.tasks {
			t = proto.CloneOf(t)
			t.State, t.Error, t.CompletedAt = dtaskv1.TaskState_TASK_STATE_ASSIGNED, "", 0
			tasks = append(tasks, t)
		}
		if err := s.Send(&dtaskv1.WatchJobResponse{Tasks: tasks[:1], More: true}); err != nil {
			return err
		}
		if err := s.Send(&dtaskv1.WatchJobResponse{Job: first, Index: 7, Tasks: tasks[1:]}); err != nil {
			return err
		}
	}
	if r.GetFromIndex() >= 9 {
		return s.Send(&dtaskv1.WatchJobResponse{Job: j.job})
	}
	err := s.Send(&dtaskv1.WatchJobResponse{Job: j.job, Index: 9, Tasks: j.tasks})
	if err == nil && j.job.GetState() == dtaskv1.JobState_JOB_STATE_RUNNING {
		<-s.Context().Done()
	}
	return err
}
