package api

import (
	"context"
	"fmt"
	"time"
)

// streamStallTimeout is how long a caller may leave the next message of a byteStream unread:
// a replica writes one backup and one bundle at a time.
const streamStallTimeout = time.Minute

// byteStream sends what is written to it in messages of messageBytes bytes. It keeps the
// error of a message that could not be sent.
type byteStream struct {
	ctx  context.Context //nolint:containedctx // of the call: io.Writer has none
	what string          // is sent, for the error
	send func(data []byte) error
	b    []byte
	err  error
}

// streamStalled ends a call whose caller does not read it.
func streamStalled(what string) error {
	return &Error{
		Kind: KindRefused, Message: fmt.Sprintf("the %s was not read for %s, so the coordinator has ended it: "+
			"write it to a file that is fast enough, and copy that", what, streamStallTimeout),
	}
}

// Write implements io.Writer.
func (s *byteStream) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), messageBytes-len(s.b))
		s.b, rest = append(s.b, rest[:n]...), rest[n:]
		if len(s.b) < messageBytes {
			break
		}
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// flush sends what was written. A send waits for the caller as long as flow control wants,
// and only the end of the call ends it: its goroutine may outlive flush after an error, and
// ends with the call.
func (s *byteStream) flush() error {
	if s.err == nil && s.ctx.Err() != nil {
		s.err = context.Cause(s.ctx)
	}
	if s.err != nil || len(s.b) == 0 {
		return s.err
	}
	message := s.b
	s.b = nil                   // gRPC may still read it
	sent := make(chan error, 1) // size 1: nothing receives after an error
	go func() { sent <- s.send(message) }()
	stalled := time.NewTimer(streamStallTimeout)
	defer stalled.Stop()
	select {
	case s.err = <-sent:
	case <-stalled.C:
		s.err = streamStalled(s.what)
	case <-s.ctx.Done():
		s.err = context.Cause(s.ctx)
	}
	return s.err
}
