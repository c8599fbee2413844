package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/dtask/dtask/worker"
)

// checkInterval is the number of divisions between two checks of the context.
const checkInterval = 1 << 16

// primality is the result of prime.
type primality struct {
	Prime  bool   `json:"prime"`
	Factor uint64 `json:"factor"` // the smallest prime factor; 0 for primes, 0 and 1
}

// prime tests the integer in the payload by trial division.
func prime(ctx context.Context, t *worker.Task) ([]byte, error) {
	n, err := strconv.ParseUint(text(t.Payload), 10, 63)
	if err != nil {
		return nil, worker.Fatal(fmt.Errorf("invalid payload %.40q: must be an integer from 0 to %d", t.Payload, int64(math.MaxInt64)))
	}
	factor, err := smallestFactor(ctx, n, t.Progress)
	if err != nil {
		return nil, err
	}
	return json.Marshal(primality{Prime: n > 1 && factor == 0, Factor: factor}) //nolint:wrapcheck // cannot fail
}

// smallestFactor returns the smallest prime factor of n, or 0 if n is prime or
// less than 2. Candidates above 3 are those next to multiples of 6.
func smallestFactor(ctx context.Context, n uint64, progress func(float64, string)) (uint64, error) {
	for _, d := range []uint64{2, 3} {
		if n > d && n%d == 0 {
			return d, nil
		}
	}
	root := math.Sqrt(float64(n))
	for d, tried := uint64(5), 0; d <= n/d; d += 6 {
		if n%d == 0 {
			return d, nil
		}
		if e := d + 2; n%e == 0 { // even if e > √n: then n ≥ d² > e, and its cofactor was tried before
			return e, nil
		}
		if tried++; tried%checkInterval == 0 {
			if ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
			if tried%(64*checkInterval) == 0 {
				progress(float64(d)/root, "")
			}
		}
	}
	return 0, nil
}
