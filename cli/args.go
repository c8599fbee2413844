package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"

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
		return "", notFound("job %q not found: job IDs are numbers such as 42", s)
	}
	return s, nil
}

// parseJobIDs checks job IDs and removes duplicates.
func parseJobIDs(args []string) ([]string, error) {
	var ids []string
	seen := make(map[string]bool)
	for _, arg := range args {
		id, err := parseJobID(arg)
		if err != nil {
			return nil, err
		}
		if !seen[id] {
			seen[id], ids = true, append(ids, id)
		}
	}
	return ids, nil
}

// parseRef splits JOB or JOB/TASK.
func parseRef(s string) (job, task string, err error) {
	job, task, found := strings.Cut(s, "/")
	if job, err = parseJobID(job); err != nil {
		return "", "", err
	}
	if found && task == "" {
		return "", "", notFound("invalid task reference %q: use JOB/TASK", s)
	}
	return job, task, nil
}

// parseTaskRef splits JOB/TASK.
func parseTaskRef(s string) (job, task string, err error) {
	job, task, err = parseRef(s)
	if err == nil && task == "" {
		err = usagef("invalid task reference %q: use JOB/TASK", s)
	}
	return job, task, err
}

func notFound(format string, args ...any) error {
	return &client.Error{Kind: client.ErrNotFound, Message: fmt.Sprintf(format, args...)}
}
