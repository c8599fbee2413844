// Package mutants plants bugs and sees whether the tests find them: it measures
// the tests. Each mutant is a known kind of mistake in the real code, as a
// replacement of a few lines, and names the checker that must catch it.
//
// A mutant is never in the tree. It is compiled through an overlay of the go
// command, so that the product has no switches for its own faults and a
// released program cannot contain one (docs/adr has the reasons). The checkers
// are run with
//
//	go test -tags mutant ./test/mutants -run TestCheckersCatch -v
//
// and `make mutants` does that for all; without the tag only the table itself
// is checked: every replacement must still find its place.
package mutants
