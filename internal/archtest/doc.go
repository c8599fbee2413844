// Package archtest holds the rules about dtask's source that no compiler and
// no linter knows, as tests: which package may import which, what a program
// must not link, that every package says what it is for, that the replicated
// state machine and the scheduler are deterministic, and that the decision
// records are numbered without gaps.
//
// Its tests fail with the line to change and the reason. A rule is changed
// here and in docs/architecture.md in one commit, and a new top-level folder
// asks for a decision record in docs/adr.
//
// It has no code but tests, starts no goroutine, and reads the source tree
// with the go command alone.
package archtest
