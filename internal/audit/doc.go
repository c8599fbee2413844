// Package audit has the form of an audit log: lines of JSON in files, each with the
// SHA-256 of the line before it, so that a line can't be changed or removed unnoticed.
//
//	audit-00000000000000000001.jsonl   line 1 … 8042
//	audit-00000000000000008043.jsonl   line 8043: audit.open, prev = hash of line 8042
//
// Package coordinator/audit writes the files. A chain proves only what is before its last
// line. Lines that were removed at the end, or a chain that was written again, are found
// by a Head that was kept elsewhere: the coordinators keep them in the replicated state.
package audit
