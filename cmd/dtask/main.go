// Command dtask is dtaskd, dtask-worker and dtaskctl in one file: the name under which it is
// run decides which of them it is. The three have most of their code in common, so that a
// container image with this program and links to it is half as large as one with three
// programs.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dtask/dtask/cmd/internal/dtaskctl"
	"github.com/dtask/dtask/cmd/internal/dtaskd"
	"github.com/dtask/dtask/cmd/internal/dtaskworker"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/worker/process"
)

// programs are the programs by their names.
var programs = map[string]func(){
	"dtaskd":       dtaskd.Main,
	"dtask-worker": dtaskworker.Main,
	"dtaskctl":     dtaskctl.Main,
}

func main() {
	process.RunSupervisor() // a supervisor has a name of its own
	run, err := choose(os.Args[0])
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n") // there is no other way to report it
		os.Exit(program.ExitUsage)
	}
	run()
}

// choose returns the program that has a name, which may be a path.
func choose(name string) (run func(), err error) {
	run, ok := programs[filepath.Base(name)]
	if !ok {
		names := strings.Join(slices.Sorted(maps.Keys(programs)), ", ")
		return nil, fmt.Errorf("dtask: unknown name %q: this program is run by a link to it that is called one of %s", filepath.Base(name), names)
	}
	return run, nil
}
