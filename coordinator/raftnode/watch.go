package raftnode

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// A watch connection opens like a Raft connection, with a magic of its own, and
// passes the same admission. It lies idle: it is there to break when the process at
// its other end does. Whoever opened it may ask on it:
//
//	asker    → question(1) number(8) length(2) { server }
//	answerer → verdict(1)  number(8)
//
// questionLost: have you lost this server, the leader, too? The number is the
// asker's term.
// questionSpace: is there room on your disk? Number and server mean nothing.
// questionBegun: have you heard no leader since you began? The number is the term of the
// asker's last entry, and the server is the asker. Who does not know the question answers no.
// The number of every answer is the index of the last entry.
const (
	watchMagic = "DTSW"

	questionLost  = 'L'
	questionSpace = 'S'
	questionBegun = 'B'

	verdictYes   = 1
	verdictNo    = 2
	verdictLater = 3 // an election is under way that the asker has not seen
	// to questionBegun, yes, and the last entry is of a later term than the asker's, or of
	// an earlier one; also of one that does not stand.
	verdictAhead, verdictBehind = 4, 5

	// askTimeout bounds a question with its connection and its answer.
	askTimeout = 150 * time.Millisecond
)

// question is what a replica asks another on a watch connection.
type question struct {
	kind   byte
	number uint64
	server string
}

// reply is the answer to a question.
type reply struct {
	verdict byte
	number  uint64
}

// handleWatch takes a watch connection from the Mux, whose magic has been read and
// whose deadline is set. What it starts ends when either side closes.
func (s *streamLayer) handleWatch(conn net.Conn) {
	if _, ok := s.receive(conn); !ok {
		return
	}
	tracked := s.track(conn, true, "")
	if tracked == nil {
		return
	}
	go func() { // wait waits for it: the connection is counted as inbound
		defer func() { _ = tracked.Close() }()
		for s.serveQuestion(tracked) == nil { //nolint:revive // serving is all it does
		}
	}()
}

// serveQuestion waits for one question and answers it.
func (s *streamLayer) serveQuestion(conn net.Conn) error {
	var head [9]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return err
	}
	q := question{kind: head[0], number: binary.BigEndian.Uint64(head[1:])}
	if err := readStrings(conn, &q.server); err != nil {
		return err
	}
	a := s.answer(q)
	if _, err := conn.Write(binary.BigEndian.AppendUint64([]byte{a.verdict}, a.number)); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// ask opens a watch connection to a server for one question.
func (s *streamLayer) ask(ctx context.Context, server Server, q question) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := s.connect(ctx, watchMagic, server.ID, server.Address)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return reply{}, err
		}
	}
	out := binary.BigEndian.AppendUint64([]byte{q.kind}, q.number)
	if _, err := conn.Write(appendStrings(out, q.server)); err != nil {
		return reply{}, fmt.Errorf("asking %s: %w", server.ID, err)
	}
	var in [9]byte
	if _, err := io.ReadFull(conn, in[:]); err != nil {
		return reply{}, fmt.Errorf("reading the answer of %s: %w", server.ID, err)
	}
	return reply{verdict: in[0], number: binary.BigEndian.Uint64(in[1:])}, nil
}
