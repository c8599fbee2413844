// Package impure breaks each rule of the determinism test once. It is read by
// that test and built into nothing.
package impure

import (
	"maps"
	"math/rand/v2" // want import
	"os"           // want import
	"slices"
	"time"
)

type record struct {
	weight float64    // want float
	shares [2]float32 // want float
	count  int
}

type table map[string]int

func sum(t table, done chan struct{}) int {
	total := 0
	for _, n := range t { // want map
		total += n
	}
	// unordered: a sum is the same in any order
	for _, n := range t {
		total += n
	}
	for _, n := range t { // unordered: a sum is the same in any order
		total += n
	}
	// unordered:
	for range t { // want map
		total++
	}
	for _, k := range slices.Sorted(maps.Keys(t)) {
		total += t[k]
	}
	for n := range maps.Values(t) { // want map
		total += n
	}
	go close(done) // want go
	select {       // want select
	case <-done:
	default:
	}
	return total
}

func chance(r record) int64 {
	ratio := r.weight * 2 // want float
	if ratio > rand.Float64() && os.Getpid() > 0 {
		return time.Now().UnixNano() // want name
	}
	clock := time.Since // want name
	return int64(clock(time.UnixMilli(0))) + int64(r.count) + int64(r.shares[0])
}

var _, _ = sum, chance
