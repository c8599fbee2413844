package api

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestTheDiskUsageIsThatOfFilesAndStateOfThisReplica(t *testing.T) {
	t.Parallel()
	broken := false
	r := setup(t, func(c *Config) {
		c.Disk = func() (Disk, error) {
			if broken {
				return Disk{}, errors.New("the disk is gone")
			}
			return Disk{Parts: []DiskPart{{"log", 10}, {"history", 20}}, Free: 30, Size: 40}, nil
		}
	})
	r.submit(t, "x", diamond()...)
	r.leading(false)
	got, err := r.admin.DiskUsage(t.Context(), &dtaskv1.DiskUsageRequest{})
	if err != nil {
		t.Fatal(err)
	}
	files, state := got.GetFiles(), make(map[string]uint64)
	for _, s := range got.GetState() {
		state[s.GetKind()] = s.GetBytes()
	}
	if len(files) != 2 || files[0].GetKind() != "log" || files[1].GetBytes() != 20 || got.GetDiskFreeBytes() != 30 || got.GetDiskBytes() != 40 {
		t.Errorf("got %v", got)
	}
	if got.GetServerId() != "n1" || got.GetAppliedIndex() != r.machine.Index() || state["task_definitions"] == 0 || state["jobs"] == 0 {
		t.Errorf("got %v", got)
	}
	broken = true
	if _, err := r.admin.DiskUsage(t.Context(), &dtaskv1.DiskUsageRequest{}); err == nil {
		t.Error("files that cannot be measured have a size")
	}
	none := setup(t)
	_, err = none.admin.DiskUsage(t.Context(), &dtaskv1.DiskUsageRequest{})
	wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
}
