// Package leak lets goroutines end before goleak looks for those that outlive the tests
// of a package. goleak itself waits for half a second, in which a machine without a free
// processor may run none of them.
package leak

import (
	"testing"

	"go.uber.org/goleak"
)

// attempts is how often goroutines are looked for: each waits for up to half a second.
const attempts = 120

// Patient is the tests of a package, for goleak.VerifyTestMain.
type Patient struct{ *testing.M }

// Run runs the tests, and returns when no goroutine of theirs is left, or none is to be
// expected to end. goleak reports those.
func (p Patient) Run() (code int) {
	code = p.M.Run()
	for range attempts {
		if code != 0 || goleak.Find() == nil {
			break
		}
	}
	return code
}
