// Command mark is what tasks of the suites run: it writes to a ledger that it
// begins, works for a while, and writes that it ends. So what was executed, how
// often, when and where is known from the commands themselves, whatever dtask
// says of it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dtask/dtask/test/cluster/ledger"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mark:", err)
	}
	os.Exit(code) //nolint:forbidigo // this is main
}

// brokenLedger is the exit code when the ledger cannot be written: no retry
// could hide it.
const brokenLedger = 99

func run() (int, error) {
	path := flag.String("ledger", "", "file to append to")
	work := flag.Duration("for", 0, "how long to work")
	until := flag.String("until", "", "work until this file exists")
	exit := flag.Int("exit", 0, "exit code to end with")
	fails := flag.Int("fails", -1, "end with --exit in the first so many attempts only; -1 = in all")
	stubborn := flag.Bool("ignore-term", false, "ignore SIGTERM")
	session := flag.Bool("setsid", false, "run away into a session of its own")
	flag.Parse()
	if *stubborn {
		signal.Ignore(syscall.SIGTERM)
	}
	if *session {
		if _, err := syscall.Setsid(); err != nil {
			return brokenLedger, fmt.Errorf("starting a session: %w", err)
		}
	}
	file, err := os.OpenFile(*path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return brokenLedger, fmt.Errorf("opening the ledger: %w", err)
	}
	line, err := ledger.FromEnvironment(os.Getenv)
	if err == nil {
		err = line.Append(file)
	}
	if err != nil {
		return brokenLedger, errors.Join(err, file.Close())
	}
	<-time.After(*work)
	for *until != "" {
		if _, err := os.Stat(*until); err == nil {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	line.Kind = ledger.End
	if *fails < 0 || line.Attempt <= *fails {
		line.Exit = *exit
	}
	if err := errors.Join(line.Append(file), file.Close()); err != nil {
		return brokenLedger, err
	}
	return line.Exit, nil
}
