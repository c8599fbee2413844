package cli

import (
	"fmt"
	"math"

	"github.com/spf13/pflag"
)

// precondition is the flags of commands that change jobs.
type precondition struct {
	key       string
	ifVersion uint64
}

// bindPrecondition adds the flags of a precondition.
func bindPrecondition(fl *pflag.FlagSet, p *precondition, verb string) {
	fl.StringVar(&p.key, "idempotency-key", "",
		"idempotency `KEY`; repeating it has no further effect (several jobs: KEY-1, KEY-2, ...)")
	bind(fl, &p.ifVersion, "if-version", "", verb+" only if the job has this `VERSION`",
		integer[uint64](0, math.MaxInt64))
}

// check returns an error unless the flags fit a number of calls.
func (p *precondition) check(calls int) error {
	if p.ifVersion != 0 && calls > 1 {
		return usagef("--if-version requires tasks of one job: select one, or omit it")
	}
	return nil
}

// keyOf returns the key of the n-th of some calls, from 0.
func (p *precondition) keyOf(n, calls int) string {
	if p.key == "" || calls == 1 {
		return p.key
	}
	return fmt.Sprintf("%s-%d", p.key, n+1)
}
