// Command recheck runs all checkers again on the kept directory of a chaos run, for
// example after a checker was corrected.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/dtask/dtask/test/chaos/check"
)

func main() {
	code, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "recheck:", err)
	}
	os.Exit(code) //nolint:forbidigo // this is main
}

func run(args []string, out io.Writer) (int, error) {
	if len(args) != 1 {
		return 2, fmt.Errorf("missing argument: the directory of a run, as printed by its failure")
	}
	report, err := check.Dir(args[0])
	if err != nil {
		return 1, err
	}
	for _, f := range report.Faults {
		fmt.Fprintln(out, f)
	}
	fmt.Fprintf(out, "%d calls, %d executions (%d of attempts above 1); %s; %d faults\n", report.Calls, report.Runs, report.Repeats, report.Depth, len(report.Faults))
	if len(report.Faults) > 0 {
		return 1, nil
	}
	return 0, nil
}
