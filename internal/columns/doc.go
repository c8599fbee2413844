// Package columns writes and reads the columns in which assignments and outcomes
// go between leader and worker, and tasks from the client to the leader.
//
// Thousands of attempts share one message. A message of its own for each would cost
// both ends many times as much as the attempt itself: memory, a length before each
// part, and a call for each field. Arrays of numbers and one piece of bytes for all
// cost a few nanoseconds for each entry.
//
//	tasks      17  18  19  23 …       entry i of each column
//	attempts    1   1   2   1 …       is about the same attempt
//	id_sizes    2   2   2   3 …
//	ids       t4t5t6t10…
//
// A column that is zero for all entries is left out, if its message says so. What
// only few attempts have is beside the columns, in messages that name their place.
//
// Reading checks all columns first: once a reader is there, every row of it is whole.
// Rows share the memory of their message.
package columns

import (
	"errors"
	"fmt"
)

// ErrMalformed is what errors wrap about columns that do not fit together. The
// caller should end the session or refuse the job: the other end is none of ours.
var ErrMalformed = errors.New("columns: malformed")

func malformed(what string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(what, args...))
}

// put appends entry n to a column that is left out while it is zero for all.
func appendSparse(column []uint32, n int, v uint32, room int) []uint32 {
	if len(column) == n && n > 0 {
		return append(column, v)
	}
	if v == 0 {
		return column
	}
	return append(append(make([]uint32, 0, max(room, n+1)), make([]uint32, n)...), v)
}

// piece appends to the bytes of all rows those of one. The first makes room for as many
// rows like it.
func appendBytes[B string | []byte](all []byte, one B, rows int) []byte {
	const most = 256 << 10 // a row may be much longer than the others
	if cap(all) == 0 && len(one) > 0 {
		all = make([]byte, 0, max(len(one), min(rows*len(one), most)))
	}
	return append(all, one...)
}

// entry is entry i of a column that may be left out.
func sparseAt(column []uint32, i int) uint32 {
	if len(column) == 0 {
		return 0
	}
	return column[i]
}

// fits checks the length of a column that may be left out.
func checkLength(name string, column []uint32, n int) error {
	if len(column) != 0 && len(column) != n {
		return malformed("%d entries of %s beside %d tasks", len(column), name, n)
	}
	return nil
}

// fill checks that sizes add up to the bytes that they divide.
func checkSizes(name string, sizes []uint32, bytes int) error {
	sum := uint64(0) // of less than 2^32 numbers of 32 bits
	for _, size := range sizes {
		sum += uint64(size)
	}
	if sum != uint64(bytes) { //nolint:gosec // a length
		return malformed("%s are %d bytes, and their sizes say %d", name, bytes, sum)
	}
	return nil
}

// inPlace checks that a message beside the columns is for one of n entries, after
// the one before.
func checkPlace(name string, place uint32, before int64, n int) error {
	if int64(place) <= before || int64(place) >= int64(n) {
		return malformed("%s for place %d, after place %d of %d", name, place, before, n)
	}
	return nil
}
