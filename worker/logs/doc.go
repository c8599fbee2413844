// Package logs keeps the output of attempts on a worker's disk, so that it can be read
// after the worker has restarted.
//
// Most outputs are short, and a file for each would cost more than the attempt. They are
// records in shared segments, which are only appended to:
//
//	record: crc, length, attempt, stream, time, position of the attempt's previous record, data
//
// A segment is sealed at SegmentBytes: an index file beside it then has the last record of
// each of its attempts. What an attempt writes beyond MaxShared bytes goes to files of
// its own, whose middle is dropped: the beginning and the end of a long output are kept.
//
// Retention removes whole segments, the oldest first, and the files of long outputs.
// Nothing is synced: a power failure may lose the last seconds of output, never more.
// After a crash, records up to the first damaged one are read.
//
// A Store is safe for concurrent use. It starts no goroutines.
package logs
