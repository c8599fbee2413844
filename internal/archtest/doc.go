// Package archtest holds rules about dtask's source that no compiler and no linter
// checks, as tests: which package may import which, what a program must not link,
// that every package has a doc comment, that the replicated state machine and the
// scheduler are deterministic, that the decision records are complete, and that docs
// name only what exists.
//
// Its tests fail with the line to change and the reason. Change a rule here and in
// docs/architecture.md in one commit. A new top-level directory needs a decision
// record in docs/adr.
//
// It contains only tests, starts no goroutine, and reads the source tree and the go
// command's output.
package archtest
