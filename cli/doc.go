// Package cli implements dtaskctl: one noun per file, and one file per verb of a
// noun.
//
//	main ─► root ─► command ─► client ─► cluster
//	                   │
//	                   └─► document (-o json, yaml) or show (text) ─► standard output
//
// A command validates its flags and arguments, calls the cluster through package
// client, and returns a view: a document for programs and text for people. The
// data goes to standard output; progress, hints and errors go to standard error.
// With -o json, standard output is one JSON document and nothing else. A command
// returns an error; exit.go alone turns it into an exit code, a message and a hint.
//
// Only progress bars, bench and run --wait start goroutines, and all wait for them.
// With run --wait, standard output is that of a command, and so is the exit code.
package cli
