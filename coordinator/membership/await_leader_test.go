package membership

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTheWaitForASuccessorIsShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		begun := time.Now()
		r.AwaitSuccessor(t.Context(), r.term-1)
		if took := time.Since(begun); took > 0 {
			t.Errorf("a leader that is known was awaited for %v", took)
		}
		r.AwaitSuccessor(t.Context(), r.term)
		if took := time.Since(begun); took < maxSuccessorWait || took > 2*maxSuccessorWait {
			t.Errorf("a leader that is not known was awaited for %v, want %v", took, maxSuccessorWait)
		}
	})
}
