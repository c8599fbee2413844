// Package document defines the JSON documents that other programs read: the
// output of dtaskctl -o json, and the bodies of webhooks and dead-letter hooks.
//
// Documents are made from protocol messages by the New functions, or filled in by
// the caller when no message corresponds to them. Fields are only ever added.
// Times are RFC 3339 in UTC, or null when they are not set; IDs are strings.
// The files in testdata show every document with every field set.
//
// The package does no I/O, starts no goroutines, and returns an error only when a
// document can't be encoded.
package document
