package format

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/fsm"
)

func TestAFlippedBitIsFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		key, value := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(rt, "key"), rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(rt, "value")
		sealed := Seal(key, bytes.Clone(value))
		if got, err := Open(key, sealed); err != nil || !bytes.Equal(got, value) {
			rt.Fatalf("got %x, %v, want %x", got, err, value)
		}
		sealed[rapid.IntRange(0, len(sealed)-1).Draw(rt, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		if _, err := Open(key, sealed); !isDamage(err) {
			rt.Fatalf("a flipped bit gives %v", err)
		}
	})
}

func TestAShortValueIsDamage(t *testing.T) {
	t.Parallel()
	if _, err := Open(nil, []byte{1, 2, 3}); !isDamage(err) {
		t.Errorf("got %v", err)
	}
}

func isDamage(err error) bool {
	_, ok := errors.AsType[*DamageError](err)
	return ok
}

func TestJobKeysSortLikeIDs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		a, b := fsm.JobID(rapid.Uint64().Draw(rt, "a")), fsm.JobID(rapid.Uint64().Draw(rt, "b"))
		if (bytes.Compare(JobKey(a), JobKey(b)) < 0) != (a < b) {
			rt.Fatalf("keys of %d and %d are out of order", a, b)
		}
		if id, ok := ParseJobKey(JobKey(a)); !ok || id != a {
			rt.Fatalf("got %d, %v, want %d", id, ok, a)
		}
	})
}
