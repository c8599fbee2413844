package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/sendqueue"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// messageBytes closes a message. Coordinators accept up to 1 MiB.
	messageBytes = 512 << 10
	// maxParts is how many parts a message may have.
	maxParts = 1000
)

// A submitStream is a call of Submit, which all submissions of one connection
// share. While a message is being sent, jobs gather for the next one. It stays
// open until the connection or the coordinator's term ends.
type submitStream struct {
	conn    *grpc.ClientConn
	cluster string // that was known when the stream was opened
	cancel  context.CancelCauseFunc
	running *sync.WaitGroup // the client's
	queue   *sendqueue.Queue[*upload, struct{}, grpc.PreparedMsg]
	stream  grpc.BidiStreamingClient[dtaskv1.SubmitRequest, dtaskv1.SubmitResponse]

	packing sync.Mutex // held while jobs of callers are read

	mu        sync.Mutex         // guards the rest
	uploads   map[uint64]*upload // in flight, by number
	last      uint64             // number of a job
	sent      time.Time          // when a message was sent
	ended     bool
	stopGuard context.CancelFunc // ends the guard; nil: nothing is in flight
}

// submitStream returns the stream of a connection, and opens it if necessary.
func (c *Client) submitStream(conn *grpc.ClientConn) (*submitStream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	cluster := c.identity.get()
	if s := c.streams[conn]; s != nil {
		if s.cluster == cluster {
			return s, nil
		}
		// It was opened before the cluster was known, so the coordinator could not refuse
		// it. Jobs in flight are submitted again with their keys.
		s.cancel(errCut)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &submitStream{
		conn: conn, cluster: cluster, cancel: cancel, running: &c.running, uploads: make(map[uint64]*upload),
		queue: sendqueue.New[*upload, struct{}, grpc.PreparedMsg](),
	}
	c.streams[conn] = s
	c.running.Go(func() {
		err := s.run(ctx)
		c.mu.Lock()
		if c.streams[conn] == s {
			delete(c.streams, conn)
		}
		c.mu.Unlock()
		s.end(err)
	})
	return s, nil
}

// run opens the stream and sends messages until it ends.
func (s *submitStream) run(ctx context.Context) error {
	defer s.cancel(nil)
	var err error
	if s.stream, err = dtaskv1.NewJobServiceClient(s.conn).Submit(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	var receiving sync.WaitGroup
	receiving.Go(func() { s.cancel(s.receive()) })
	err = s.queue.Run(ctx, s.pack, func(m *grpc.PreparedMsg) error { return s.stream.SendMsg(m) })
	if err != nil && !errors.Is(err, io.EOF) { // the status of a stream that has ended is receive's
		s.cancel(err)
	}
	receiving.Wait()
	return context.Cause(ctx)
}

// receive distributes results until the stream ends.
func (s *submitStream) receive() error {
	for {
		m, err := s.stream.Recv()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Unavailable, "the coordinator closed the stream")
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		for _, r := range m.GetResults() {
			if u := s.uploads[r.GetJob()]; u != nil {
				u.answer = r
				s.removeLocked(u)
			}
		}
		s.mu.Unlock()
	}
}

// add puts the jobs of a batch in flight. It reports false if the stream has
// ended.
func (s *submitStream) add(b *submitBatch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	if len(s.uploads) == 0 {
		s.guardLocked()
	}
	for _, u := range b.left {
		if u.failed != nil {
			continue
		}
		s.last++
		u.number = s.last
		s.uploads[u.number] = u
		b.pending++
		b.unsent++
		if len(b.left) > 1 {
			s.queue.AddDeferred(u)
		} else {
			s.queue.Add(u)
		}
	}
	s.queue.Flush()
	if b.pending == 0 {
		close(b.done)
		s.unguardLocked()
	}
	return true
}

// removeLocked notes that a job is no longer in flight.
func (s *submitStream) removeLocked(u *upload) {
	delete(s.uploads, u.number)
	b := u.batch
	b.active = time.Now()
	if b.pending--; b.pending == 0 {
		close(b.done)
	}
	s.unguardLocked()
}

// guardLocked starts the guard, which ends the stream when the coordinator
// stops responding.
func (s *submitStream) guardLocked() {
	ctx, cancel := context.WithCancel(context.Background())
	s.stopGuard = cancel
	s.running.Go(func() {
		if err := guard(ctx, s.conn, false); err != nil {
			s.cancel(err)
		}
	})
}

// unguardLocked stops the guard if nothing is in flight.
func (s *submitStream) unguardLocked() {
	if len(s.uploads) == 0 && s.stopGuard != nil {
		s.stopGuard()
		s.stopGuard = nil
	}
}

// end fails all jobs in flight.
func (s *submitStream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, u := range s.uploads {
		u.batch.err = err
		s.removeLocked(u)
	}
}

// release returns when nothing reads the jobs of a batch, which are no longer
// in flight.
func (s *submitStream) release(b *submitBatch) {
	s.mu.Lock()
	unsent := b.unsent
	s.mu.Unlock()
	if unsent > 0 {
		s.packing.Lock()
		defer s.packing.Unlock() // pack has finished with them
	}
}

// abandon takes the jobs of a batch out of flight. The error says whether any
// may have been stored.
func (s *submitStream) abandon(b *submitBatch, st *status.Status) error {
	s.mu.Lock()
	for _, u := range b.left {
		if s.uploads[u.number] == u {
			s.removeLocked(u)
		}
	}
	sent := b.sent
	s.mu.Unlock()
	s.release(b)
	if !sent {
		return &unsentError{st: st}
	}
	return st.Err()
}

// idleUntil returns how much longer a batch may make no progress. While parts
// wait to be sent, any message of the stream is progress.
func (s *submitStream) idleUntil(b *submitBatch) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	active := b.active
	if b.unsent > 0 && s.sent.After(active) {
		active = s.sent
	}
	return time.Until(active.Add(submitTimeout))
}

// pack encodes the next message. Jobs of callers are read only here, under
// packing, and not after they have left flight.
func (s *submitStream) pack(queued []*upload, _ []struct{}) (*grpc.PreparedMsg, int) {
	s.packing.Lock()
	defer s.packing.Unlock()
	var packed []*upload
	var parts []*dtaskv1.JobPart
	var header *dtaskv1.JobHeader // of the previous job of one part
	n, size := 0, 0
	for ; n < len(queued) && len(parts) < maxParts; n++ {
		u := queued[n]
		if !s.inFlight(u) {
			continue
		}
		if len(parts) > 0 && size+u.size > messageBytes {
			break
		}
		part := u.part
		part.Job, u.header = u.number, part.GetHeader()
		if h := part.GetHeader(); h != nil && !part.GetMore() {
			isRerun := part.GetRerunOf() != "" // its header is not shared
			if h == header && !isRerun {
				part.Header = nil
			}
			if header = h; isRerun {
				header = nil
			}
		}
		packed, parts, size = append(packed, u), append(parts, part), size+u.size
	}
	m := s.encode(packed, parts)
	s.notePacked(packed, parts)
	return m, n
}

func (s *submitStream) inFlight(u *upload) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uploads[u.number] == u
}

// notePacked queues the jobs that have further parts again.
func (s *submitStream) notePacked(packed []*upload, parts []*dtaskv1.JobPart) {
	for i, u := range packed {
		if parts[i].GetMore() && u.failed == nil {
			u.advance()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = time.Now()
	for i, u := range packed {
		u.batch.sent, u.batch.active = true, s.sent
		switch {
		case s.uploads[u.number] != u: // answered early
		case u.failed != nil:
			s.removeLocked(u)
		case parts[i].GetMore():
			s.queue.Add(u)
		default:
			u.batch.unsent--
		}
	}
}

// encode encodes a message. A job that can't be encoded fails alone.
func (s *submitStream) encode(packed []*upload, parts []*dtaskv1.JobPart) *grpc.PreparedMsg {
	if len(parts) == 0 {
		return nil
	}
	m := new(grpc.PreparedMsg)
	if m.Encode(s.stream, &dtaskv1.SubmitRequest{Parts: parts}) == nil {
		return m
	}
	var sound []*dtaskv1.JobPart
	for i, part := range parts {
		part.Header = packed[i].header
		if _, err := proto.Marshal(part); err != nil {
			packed[i].failed = &Error{Kind: ErrInvalid, Message: fmt.Sprintf("%s: %v", submitting, err)}
			continue
		}
		sound = append(sound, part)
	}
	if len(sound) == 0 || m.Encode(s.stream, &dtaskv1.SubmitRequest{Parts: sound}) != nil {
		return nil
	}
	return m
}
