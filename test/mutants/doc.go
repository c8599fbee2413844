// Package mutants plants bugs and checks whether the tests find them: it tests the
// tests. Each mutant is a known kind of mistake in the real code, given as a
// replacement of a few lines, and names the checkers that must catch it.
//
// A mutant is never in the tree. It is compiled through an overlay of the go command,
// so that dtask has no switches for its own faults and a released program can't
// contain one (docs/adr/0013-planted-bugs.md). The checkers run with
//
//	go test -tags mutant ./test/mutants -run TestCheckersCatch -v
//
// and `make mutants` does so for all. Without the tag only the table is checked: every
// replacement must match its file exactly once.
package mutants
