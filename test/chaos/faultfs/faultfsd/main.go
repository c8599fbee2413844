//go:build linux

// Command faultfsd serves a disk that breaks on request: it mounts an empty disk at
// the given directory, reads requests from standard input, answers on standard
// output, and unmounts the disk when its input ends (package mount).
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/dtask/dtask/test/chaos/faultfs/mount"
)

func main() {
	// The process that started it ends it by closing its input. It ignores signals
	// to the whole group because other processes still use the disk.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: faultfsd DIRECTORY")
		os.Exit(2) //nolint:forbidigo // this is main
	}
	if err := mount.Serve(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "faultfsd:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}
