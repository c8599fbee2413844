package scheduler_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler"
)

func TestSharesAreComparedExactly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(rapid.Uint64Range(0, 5), rapid.Uint64Range(1<<30, 1<<33), rapid.Uint64Range(math.MaxUint64-5, math.MaxUint64))
		total := rapid.OneOf(rapid.Uint64Range(1, 5), rapid.Uint64Range(1<<30, 1<<33), rapid.Uint64Range(math.MaxUint64-5, math.MaxUint64))
		weight := rapid.OneOf(rapid.Uint32Range(1, 5), rapid.Uint32Range(math.MaxUint32-5, math.MaxUint32))
		a, x, v := amount.Draw(t, "a"), total.Draw(t, "x"), weight.Draw(t, "v")
		b, y, w := amount.Draw(t, "b"), total.Draw(t, "y"), weight.Draw(t, "w")
		part := func(amount, total uint64, weight uint32) *big.Rat {
			of := new(big.Int).Mul(new(big.Int).SetUint64(total), big.NewInt(int64(weight)))
			return new(big.Rat).SetFrac(new(big.Int).SetUint64(amount), of)
		}
		if got, want := scheduler.CompareShares(a, x, v, b, y, w), part(a, x, v).Cmp(part(b, y, w)); got != want {
			t.Errorf("%d/%d/%d and %d/%d/%d: got %d, want %d", a, x, v, b, y, w, got, want)
		}
	})
}
