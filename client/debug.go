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
	// debugTimeout is how long a coordinator may take to send a debug bundle, beside the
	// CPU profile.
	debugTimeout = 30 * time.Second
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
	answers, err := askMembers(ctx, c, "making a debug bundle", profile+debugTimeout, func(ctx context.Context, t try) (d ReplicaDebug, err error) {
		stream, err := t.admin().Debug(ctx, &dtaskv1.DebugRequest{ProfileMs: profile.Milliseconds()})
		if err != nil {
			return d, err
		}
		err = d.receive(stream.Recv)
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
