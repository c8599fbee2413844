// Package splitmix is the scheduler's seeded random source: SplitMix64 by Steele,
// Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA 2014),
// with the mixing constants of Sebastiano Vigna's reference version. Placement and
// backoff need evenly spread choices that a test can repeat, on every platform and
// with every release of Go.
//
// It is not for secrets. It has no goroutines and no errors.
package splitmix

import "math/bits"

// golden is 2^64 divided by the golden ratio, made odd: the step between two
// states that visits all 2^64 of them.
const golden = 0x9e3779b97f4a7c15

// Source is a stream of numbers determined by its seed. Any seed is good.
// It is not safe for concurrent use.
type Source struct{ state uint64 }

// New returns the stream of a seed.
func New(seed uint64) Source { return Source{state: seed} }

// Next returns the next 64 random bits.
func (s *Source) Next() uint64 {
	s.state += golden
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Below returns a number from 0 to n-1, or 0 if n is 0. It scales by
// multiplication; the bias, at most n in 2^64, is negligible for all callers.
func (s *Source) Below(n uint64) uint64 {
	high, _ := bits.Mul64(s.Next(), n)
	return high
}
