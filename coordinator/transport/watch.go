package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A watch connection opens like a Raft connection, with a magic of its own, and passes
// the same admission. It is idle: it breaks when the process at its other end exits.
// The side that opened it may ask questions on it:
//
//	asker    → kind(1) term(8) length(2) { server }
//	answerer → code(1) last index(8)
const watchMagic = "DTSW"

// QuestionKind is what a replica asks another one. A replica that does not know a kind
// answers no.
type QuestionKind byte

// The questions.
const (
	// AskLeaderLost asks whether the leader, Question.Server, is unreachable there too.
	// Question.Term is the asker's term.
	AskLeaderLost QuestionKind = 'L'
	// AskLeaderSilent asks whether the replica has heard nothing from the leader,
	// Question.Server, for about a heartbeat timeout. Question.Term is the asker's term.
	AskLeaderSilent QuestionKind = 'Q'
	// AskDiskSpace asks whether the disk has free space.
	AskDiskSpace QuestionKind = 'S'
	// AskNoLeader asks whether the replica has had no contact with a leader since it
	// started. Question.Term is the term of the asker's last entry, Question.Server is
	// the asker.
	AskNoLeader QuestionKind = 'B'
)

// Question is what a replica asks another one on a watch connection.
type Question struct {
	Kind   QuestionKind
	Term   uint64
	Server string
}

// AnswerCode is the answer proper.
type AnswerCode byte

// The answers.
const (
	AnswerYes  AnswerCode = 1
	AnswerNo   AnswerCode = 2
	AnswerWait AnswerCode = 3 // an election is in progress that the asker has not seen
	// AnswerNewerLog and AnswerOlderLog mean yes to AskNoLeader, with a last entry of a
	// later or an earlier term than the asker's. A replica that does not stand for
	// election answers the latter.
	AnswerNewerLog AnswerCode = 4
	AnswerOlderLog AnswerCode = 5
)

// Answer is the answer to a Question.
type Answer struct {
	Code      AnswerCode
	LastIndex uint64 // of the log of the replica that answers
}

// handleWatch serves a watch connection from the Mux, whose magic has been read and
// whose deadline is set, until either side closes it.
func (s *streamLayer) handleWatch(conn net.Conn, proven proof) {
	if _, ok := s.receive(conn, proven); !ok {
		return
	}
	tracked := s.track(conn, true, "")
	if tracked == nil {
		return
	}
	go func() { // Transport.Wait waits for it: the connection counts as inbound
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
	if err := conn.SetDeadline(time.Now().Add(s.links.askTimeout())); err != nil {
		return err
	}
	q := Question{Kind: QuestionKind(head[0]), Term: binary.BigEndian.Uint64(head[1:])}
	if err := readStrings(conn, &q.Server); err != nil {
		return err
	}
	a := s.answer(q)
	if err := conn.SetDeadline(time.Now().Add(s.links.askTimeout())); err != nil {
		return err
	}
	if _, err := conn.Write(binary.BigEndian.AppendUint64([]byte{byte(a.Code)}, a.LastIndex)); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// ask asks a server a question, on the connection that is kept open for that if there
// is one.
func (s *streamLayer) ask(ctx context.Context, p Peer, q Question) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.links.askTimeout())
	defer cancel()
	conn := s.links.take(watchMagic, p)
	if conn == nil {
		var err error
		if conn, err = s.connect(ctx, watchMagic, p.ID, p.Address); err != nil {
			return Answer{}, err
		}
	}
	a, err := askOn(ctx, conn, p.ID, q)
	if err != nil { // a late answer may follow
		return Answer{}, errors.Join(err, conn.Close())
	}
	s.links.put(watchMagic, p, conn)
	return a, nil
}

// askOn asks a question on a connection. The ctx has a deadline.
func askOn(ctx context.Context, conn net.Conn, id string, q Question) (Answer, error) {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return Answer{}, err
	}
	out := binary.BigEndian.AppendUint64([]byte{byte(q.Kind)}, q.Term)
	if _, err := conn.Write(appendStrings(out, q.Server)); err != nil {
		return Answer{}, fmt.Errorf("asking %s: %w", id, err)
	}
	var in [9]byte
	if _, err := io.ReadFull(conn, in[:]); err != nil {
		return Answer{}, fmt.Errorf("reading the answer of %s: %w", id, err)
	}
	return Answer{Code: AnswerCode(in[0]), LastIndex: binary.BigEndian.Uint64(in[1:])}, nil
}
