package cli

import (
	"context"

	"google.golang.org/grpc"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func (f *fakeLeader) DiskUsage(context.Context, *dtaskv1.DiskUsageRequest) (*dtaskv1.DiskUsageResponse, error) {
	return &dtaskv1.DiskUsageResponse{
		ServerId: "n1", AppliedIndex: 120, HeapBytes: 300 << 20, DiskFreeBytes: 100 << 30, DiskBytes: 200 << 30,
		Files: []*dtaskv1.Size{{Kind: "log", Bytes: 64 << 20}, {Kind: "snapshots", Bytes: 1234567}, {Kind: "audit"}},
		State: []*dtaskv1.Size{{Kind: "jobs", Bytes: 999}, {Kind: "task_records", Bytes: 54_000_000}, {Kind: "checkpoints"}},
	}, nil
}

func (f *fakeLeader) Debug(r *dtaskv1.DebugRequest, s grpc.ServerStreamingServer[dtaskv1.DebugResponse]) error {
	files := [][2]string{{"status.json", "{}\n"}, {"log.txt", "first\n"}, {"log.txt", "second\n"}, {"empty.txt", ""}, {"../../escaped", "x"}, {"/etc/escaped", "x"}}
	if r.GetProfileMs() > 0 {
		files = append(files, [2]string{"cpu.pb.gz", "profile"})
	}
	for _, file := range files {
		if err := s.Send(&dtaskv1.DebugResponse{ServerId: "n1", File: file[0], Data: []byte(file[1])}); err != nil {
			return err
		}
	}
	return nil
}
