package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/spec"
)

// locateQueue adds file, line and column to the fault of a job whose queue is unknown. Only
// the coordinators know the queues, and they don't have the file.
func locateQueue(err error, paths []string) {
	details, ok := errors.AsType[*client.Error](err)
	if !ok {
		return
	}
	for i, fault := range details.Faults {
		rest, unknown := strings.CutPrefix(fault, "job.queue: unknown queue ")
		quoted, _ := strconv.QuotedPrefix(rest)
		name, bad := strconv.Unquote(quoted)
		if !unknown || bad != nil {
			continue
		}
		for _, path := range paths {
			text, err := os.ReadFile(path) //nolint:gosec // the user's own file
			if err != nil {
				continue // standard input, or a file that is gone
			}
			if line, column := spec.QueuePosition(text, name); line > 0 {
				details.Faults[i] = fmt.Sprintf("%s:%d:%d: %s", path, line, column, fault)
				break
			}
		}
	}
}
