package api

import (
	"context"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// backupStream sends what is written to it in messages of backupMessage bytes. It keeps the
// error of a message that could not be sent.
type backupStream struct {
	ctx  context.Context //nolint:containedctx // of the call: io.Writer has none
	send func(*dtaskv1.BackupResponse) error
	b    []byte
	err  error
}

// errBackupStalled ends a backup whose caller does not read it.
var errBackupStalled = &Error{
	Kind: KindRefused, Message: "the backup was not read for " + backupStallTimeout.String() +
		", so the coordinator has ended it: write it to a file that is fast enough, and copy that",
}

// Write implements io.Writer.
func (s *backupStream) Write(b []byte) (int, error) {
	s.b = append(s.b, b...)
	if len(s.b) < backupMessage {
		return len(b), nil
	}
	if err := s.flush(); err != nil {
		return 0, err
	}
	return len(b), nil
}

// flush sends what was written. A send waits for the caller as long as flow control wants,
// and only the end of the call ends it: its goroutine may outlive flush after an error, and
// ends with the call.
func (s *backupStream) flush() error {
	if s.err == nil && s.ctx.Err() != nil {
		s.err = context.Cause(s.ctx)
	}
	if s.err != nil || len(s.b) == 0 {
		return s.err
	}
	message := &dtaskv1.BackupResponse{Data: s.b}
	s.b = nil                   // gRPC may still read it
	sent := make(chan error, 1) // size 1: nothing receives after an error
	go func() { sent <- s.send(message) }()
	stalled := time.NewTimer(backupStallTimeout)
	defer stalled.Stop()
	select {
	case s.err = <-sent:
	case <-stalled.C:
		s.err = errBackupStalled
	case <-s.ctx.Done():
		s.err = context.Cause(s.ctx)
	}
	return s.err
}
