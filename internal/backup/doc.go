// Package backup is the format of backup files: what it takes to start a new cluster from
// the state of another one. It reads and writes streams, and knows neither the state nor
// the history that is in them. It also keeps backups in files and directories, in which a
// name means that the backup is complete.
//
//	file:  magic, frames
//	frame: kind (1 byte), length (4 bytes, little endian), contents, CRC-32C of all these
//
//	manifest  one, first: JSON
//	state     one or more: a snapshot of the state machine, cut into frames
//	job       any number, if the manifest announces the history: one chunk of a finished job
//	end       one, last: number of frames and chunks, and SHA-256 of all bytes before it
//
// A reader accepts exactly what a writer has finished: a file that is cut, changed or
// longer has no valid end. It allocates at most two frames.
//
// A file may be encrypted as a whole, in the format of age, to the public keys of those who
// can read it.
//
// The package starts no goroutines. Its errors wrap ErrNotBackup, ErrTruncated or
// ErrDamaged, unless they are those of the stream, a file or a directory.
package backup
