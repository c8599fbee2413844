package ledger

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Kind says what a line tells.
type Kind string

// The kinds of lines.
const (
	Start Kind = "start"
	End   Kind = "end"
)

// A Line is what a command wrote when it began or ended.
type Line struct {
	Kind      Kind          `json:"kind"`
	Job       string        `json:"job"`
	Task      string        `json:"task"`
	Attempt   int           `json:"attempt"`
	Token     uint64        `json:"token"`
	Execution string        `json:"execution"`
	Worker    string        `json:"worker"`
	Pid       int           `json:"pid"`
	Exit      int           `json:"exit"`
	At        time.Duration `json:"at"` // on this machine's monotonic clock
	// Labels are those of the worker's process, of starts by mark-worker.
	Labels map[string]string `json:"labels,omitempty"`
	// GPUs are those that the execution got, and GPUAmount is how many it takes, in thousandths, of
	// starts by mark-worker. The last one is shared if that is not a whole number.
	GPUs      []string `json:"gpus,omitempty"`
	GPUAmount int64    `json:"gpu_amount,omitempty"`
}

// FromEnvironment makes the line of a command that begins, from what its worker
// tells it.
func FromEnvironment(getenv func(string) string) (Line, error) {
	l := Line{
		Kind: Start, Job: getenv("DTASK_JOB_ID"), Task: getenv("DTASK_TASK_ID"),
		Execution: getenv("DTASK_EXECUTION_ID"), Worker: getenv("DTASK_WORKER"), Pid: os.Getpid(),
	}
	var attemptErr, tokenErr error
	l.Attempt, attemptErr = strconv.Atoi(getenv("DTASK_ATTEMPT"))
	l.Token, tokenErr = strconv.ParseUint(getenv("DTASK_FENCING_TOKEN"), 10, 64)
	if err := errors.Join(attemptErr, tokenErr); err != nil {
		return l, fmt.Errorf("reading the environment of a task: %w", err)
	}
	if l.Job == "" || l.Task == "" || l.Worker == "" {
		return l, errors.New("reading the environment of a task: job, task or worker is missing")
	}
	return l, nil
}

// Append writes the line with the present time to a file that was opened for
// appending: in one write, so that lines of many processes do not mix.
func (l Line) Append(file io.Writer) error {
	now, err := Now()
	if err != nil {
		return err
	}
	l.At = now
	text, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	if _, err := file.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	return nil
}

// Now is the time on the clock of the ledger.
func Now() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("reading the monotonic clock: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// Read reads a ledger; one that nobody has written to is empty. What a command had written of
// its line when it was killed is left out: at the end, or before the next line.
func Read(path string) ([]Line, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	var lines []Line
	reader := bufio.NewReader(file)
	for {
		text, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return lines, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the ledger: %w", err)
		}
		l, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("reading line %d of the ledger: %w", len(lines)+1, err)
		}
		lines = append(lines, l)
	}
}

// parse returns the line of a text that may begin with a part of another one.
func parse(text []byte) (l Line, err error) {
	if err = json.Unmarshal(text, &l); err == nil {
		return l, nil
	}
	if whole := bytes.LastIndex(text, []byte(`{"kind":`)); whole > 0 {
		return parse(text[whole:])
	}
	return l, err //nolint:wrapcheck // the caller does
}
