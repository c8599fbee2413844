//go:build !unix

package program

import "math"

// RaiseFiles does nothing: this system has no such limit.
func RaiseFiles() (uint64, error) { return math.MaxUint64, nil }
