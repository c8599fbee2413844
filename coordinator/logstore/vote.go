package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// Raft stores a vote with two calls, first its term, then its candidate. If the two
// were written one by one, a crash between them would leave the new term with the
// candidate of an earlier vote. To Raft that is a vote for this candidate: a request
// of it is granted as a repeated one, without a comparison of the logs. So a vote is
// one value, written when its candidate is known. Raft reads neither part before both
// are stored.
//
//	keyVote  term 8, candidate
//
// Changing this format loses votes.
var (
	keyVoteTerm      = []byte("LastVoteTerm") // raft's own names; neither is stored
	keyVoteCandidate = []byte("LastVoteCand")
	keyVote          = []byte("LastVote")
)

const voteTermLen = 8

// errVoteWithoutTerm is the error of a candidate that is stored without its term.
var errVoteWithoutTerm = errors.New("a vote has a candidate, but no term")

// isVotePart reports whether a key is one of the two that raft uses for a vote.
func isVotePart(key []byte) bool {
	return bytes.Equal(key, keyVoteTerm) || bytes.Equal(key, keyVoteCandidate)
}

// setVotePart holds the term of a vote until the candidate follows, and then stores
// both. Raft's main goroutine makes both calls.
func (s *Store) setVotePart(key, value []byte) error {
	if bytes.Equal(key, keyVoteTerm) {
		s.voteTerm = bytes.Clone(value)
		return s.err()
	}
	if len(s.voteTerm) != voteTermLen {
		return s.unwind(s.fail(writeStable, errVoteWithoutTerm))
	}
	vote := slices.Concat(s.voteTerm, value)
	s.voteTerm = nil
	return s.Set(keyVote, vote)
}

// getVotePart returns the term or the candidate of the last vote that was stored.
func (s *Store) getVotePart(key []byte) ([]byte, error) {
	vote, err := s.Get(keyVote)
	if err != nil {
		return nil, err
	}
	if problem := voteLenProblem(vote); problem != "" {
		return nil, s.unwind(s.fail(readStable, &DamageError{Path: s.path, Detail: problem}))
	}
	if bytes.Equal(key, keyVoteTerm) {
		return vote[:voteTermLen], nil
	}
	return vote[voteTermLen:], nil
}

// voteProblem returns what is wrong with a stored vote, or "".
func voteProblem(stored []byte) string {
	vote, problem := openValue(keyVote, stored)
	if problem == "" {
		problem = voteLenProblem(vote)
	}
	return problem
}

func voteLenProblem(vote []byte) string {
	if len(vote) < voteTermLen {
		return fmt.Sprintf("%s has %d bytes, should have at least %d", keyVote, len(vote), voteTermLen)
	}
	return ""
}
