// Package cli is dtaskctl: one noun a file or more, one verb a file.
//
// Every command takes its streams from an app, asks the cluster through package
// client, and prints through package show: data on standard output, all else on
// standard error. With -o json standard output is one JSON document and nothing
// else. A command returns an error; exit.go alone turns it into an exit code and
// into the lines what, why and what next.
//
// It starts no goroutines but those of a progress bar and of bench, and waits
// for them.
package cli
