package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// debugTimeout is how long a coordinator may send nothing, beside the time of the CPU
	// profile. The profile is the last file: a limit of the whole bundle would cut it off on
	// a slow connection.
	debugTimeout = 30 * time.Second
	// maxDebugTime bounds the whole bundle of a coordinator, beside the CPU profile.
	maxDebugTime = 10 * time.Minute
	// maxDebugBytes bounds what is kept of a coordinator's debug bundle in memory.
	maxDebugBytes = 256 << 20
)

// DebugFile is a file of a debug bundle.
type DebugFile struct {
	Name string // as the coordinator sent it
	Data []byte
}

// ReplicaDebug is the part of a debug bundle that one coordinator has sent.
type ReplicaDebug struct {
	ServerID string // empty if it is unknown
	Address  string
	Files    []DebugFile // complete unless Err is set
	Err      error       // why it sent nothing, or not all
}

// Debug asks each coordinator of the cluster for files about itself, with a CPU profile of a
// duration up to 30 s, or none with 0. It returns an element for each coordinator, ascending
// by server ID. It works without a leader, and does not retry. Only admins may call it.
// ErrUnreachable means that no coordinator responded.
func (c *Client) Debug(ctx context.Context, profile time.Duration) ([]ReplicaDebug, error) {
	answers, err := askMembers(ctx, c, "making a debug bundle", profile+maxDebugTime, func(ctx context.Context, t try) (d ReplicaDebug, err error) {
		err = d.ask(ctx, t, profile)
		return d, err
	}, func(d ReplicaDebug) string { return d.ServerID })
	if err != nil {
		return nil, err
	}
	list := make([]ReplicaDebug, 0, len(answers))
	for _, a := range answers {
		list = append(list, ReplicaDebug{ServerID: a.id, Address: a.addr, Files: a.value.Files, Err: a.err})
	}
	return list, nil
}

// ask asks a coordinator for all files. It ends if the coordinator is silent for longer than
// the profile may take.
func (d *ReplicaDebug) ask(ctx context.Context, t try, profile time.Duration) error {
	limit := profile + debugTimeout
	silent := fmt.Errorf("it sent nothing for %s", limit)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(limit, func() { cancel(silent) })
	defer timer.Stop()
	stream, err := t.admin().Debug(ctx, &dtaskv1.DebugRequest{ProfileMs: profile.Milliseconds()})
	if err == nil {
		err = d.receive(func() (*dtaskv1.DebugResponse, error) {
			got, err := stream.Recv()
			timer.Reset(limit)
			return got, err
		})
	}
	if err != nil && errors.Is(context.Cause(ctx), silent) {
		return silent
	}
	return err
}

// receive receives all files.
func (d *ReplicaDebug) receive(next func() (*dtaskv1.DebugResponse, error)) error {
	for size := 0; ; {
		got, err := next()
		switch {
		case errors.Is(err, io.EOF) && len(d.Files) == 0:
			return errCut
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		d.ServerID = got.GetServerId()
		if last := len(d.Files) - 1; last < 0 || d.Files[last].Name != got.GetFile() {
			d.Files = append(d.Files, DebugFile{Name: got.GetFile()})
		}
		f := &d.Files[len(d.Files)-1]
		f.Data = append(f.Data, got.GetData()...)
		if size += len(got.GetData()); size > maxDebugBytes {
			return fmt.Errorf("the bundle is larger than %d bytes", maxDebugBytes)
		}
	}
}
