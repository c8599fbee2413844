// Package columns encodes assignments, outcomes and submitted tasks column by
// column.
//
// Thousands of attempts share one message. A protobuf message for each would
// cost many times as much as the attempt itself: allocations, a length prefix
// and a function call per field. Arrays of numbers and one byte string for all
// rows cost a few nanoseconds per entry.
//
//	tasks      17  18  19  23 …       entry i of each column
//	attempts    1   1   2   1 …       belongs to row i
//	id_sizes    2   2   2   3 …
//	ids       t4t5t6t10…
//
// Columns that the protocol marks as optional are omitted if they are zero for
// all rows. What only few rows have is in separate messages, which name their
// row.
//
// Readers check all columns first, so that every row of a reader is complete.
// Rows share the memory of their message.
package columns

import (
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by errors about inconsistent columns. The caller
// should end the session or refuse the job.
var ErrMalformed = errors.New("columns: malformed")

func malformed(what string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(what, args...))
}

// appendSparse appends entry n to a column that is omitted while all of its
// entries are zero.
func appendSparse(column []uint32, n int, v uint32, room int) []uint32 {
	if len(column) == n && n > 0 {
		return append(column, v)
	}
	if v == 0 {
		return column
	}
	return append(append(make([]uint32, 0, max(room, n+1)), make([]uint32, n)...), v)
}

// appendBytes appends the bytes of one row to those of all rows. The first
// call allocates memory for similar rows.
func appendBytes[B string | []byte](all []byte, one B, rows int) []byte {
	const most = 256 << 10 // a row may be much longer than the others
	if cap(all) == 0 && len(one) > 0 {
		all = make([]byte, 0, max(len(one), min(rows*len(one), most)))
	}
	return append(all, one...)
}

// sparseAt returns entry i of a column that may be omitted.
func sparseAt(column []uint32, i int) uint32 {
	if len(column) == 0 {
		return 0
	}
	return column[i]
}

// checkLength checks the length of a column that may be omitted.
func checkLength(name string, column []uint32, n int) error {
	if len(column) != 0 && len(column) != n {
		return malformed("%d entries of %s beside %d tasks", len(column), name, n)
	}
	return nil
}

// checkSizes checks that the sizes of all rows add up to the length of their
// bytes.
func checkSizes(name string, sizes []uint32, bytes int) error {
	sum := uint64(0) // can't overflow: fewer than 2^32 numbers of 32 bits
	for _, size := range sizes {
		sum += uint64(size)
	}
	if sum != uint64(bytes) { //nolint:gosec // a length
		return malformed("%s are %d bytes, and their sizes say %d", name, bytes, sum)
	}
	return nil
}

// checkPlace checks that a separate message belongs to one of n rows, and to
// one after the previous message's.
func checkPlace(name string, place uint32, before int64, n int) error {
	if int64(place) <= before || int64(place) >= int64(n) {
		return malformed("%s for place %d, after place %d of %d", name, place, before, n)
	}
	return nil
}
