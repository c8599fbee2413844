// Package show is how dtaskctl puts things on paper: the JSON documents that
// other programs rely on, tables for people, times, sizes and colours. It asks
// nobody anything; it starts no goroutines.
package show
