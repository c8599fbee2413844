package transport

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
// QuestionLost: have you lost this server, the leader, too? The number is the
// asker's term.
// QuestionSpace: is there room on your disk? Number and server mean nothing.
// QuestionBegun: have you heard no leader since you began? The number is the term of the
// asker's last entry, and the server is the asker. Who does not know the question answers no.
// The number of every answer is the index of the last entry.
const (
	watchMagic = "DTSW"

	QuestionLost  = 'L'
	QuestionSpace = 'S'
	QuestionBegun = 'B'

	AnswerYes   = 1
	AnswerNo    = 2
	AnswerLater = 3 // an election is under way that the asker has not seen
	// to QuestionBegun, yes, and the last entry is of a later term than the asker's, or of
	// an earlier one; also of one that does not stand.
	AnswerAhead, AnswerBehind = 4, 5

	// AskTimeout bounds a question with its connection and its answer.
	AskTimeout = 150 * time.Millisecond
)

// question is what a replica asks another on a watch connection.
type Question struct {
	Kind   byte
	Number uint64
	Server string
}

// reply is the answer to a question.
type Answer struct {
	Verdict byte
	Number  uint64
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
	if err := conn.SetDeadline(time.Now().Add(AskTimeout)); err != nil {
		return err
	}
	q := Question{Kind: head[0], Number: binary.BigEndian.Uint64(head[1:])}
	if err := readStrings(conn, &q.Server); err != nil {
		return err
	}
	a := s.answer(q)
	if _, err := conn.Write(binary.BigEndian.AppendUint64([]byte{a.Verdict}, a.Number)); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// ask opens a watch connection to a server for one question.
func (s *streamLayer) ask(ctx context.Context, id, address string, q Question) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	conn, err := s.connect(ctx, watchMagic, id, address)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return Answer{}, err
		}
	}
	out := binary.BigEndian.AppendUint64([]byte{q.Kind}, q.Number)
	if _, err := conn.Write(appendStrings(out, q.Server)); err != nil {
		return Answer{}, fmt.Errorf("asking %s: %w", id, err)
	}
	var in [9]byte
	if _, err := io.ReadFull(conn, in[:]); err != nil {
		return Answer{}, fmt.Errorf("reading the answer of %s: %w", id, err)
	}
	return Answer{Verdict: in[0], Number: binary.BigEndian.Uint64(in[1:])}, nil
}
