package cli

import (
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
)

// argCount requires from least to most arguments.
func argCount(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("missing argument: %s", cmd.UseLine())
		case len(args) > most:
			return fmt.Errorf("unexpected argument %q: %s", args[most], cmd.UseLine())
		}
		return nil
	}
}

var (
	noArgs     = argCount(0, 0)
	oneArg     = argCount(1, 1)
	atLeastOne = argCount(1, math.MaxInt)
)

// parseJobID checks that s can be a job ID: a decimal number.
func parseJobID(s string) (string, error) {
	if n, err := strconv.ParseUint(s, 10, 64); err != nil || n == 0 {
		return "", notFound("job %q not found: use an ID such as 42, @last or @NAME", s)
	}
	return s, nil
}

func notFound(format string, args ...any) error {
	return &client.Error{Kind: client.ErrNotFound, Message: fmt.Sprintf(format, args...)}
}
