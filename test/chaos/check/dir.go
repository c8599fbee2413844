package check

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dtask/dtask/test/chaos/history"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// Names of the files that a run keeps in its directory, beside the replicas'
// directories.
const (
	HistoryFile = "history.jsonl"
	PlansFile   = "plans.jsonl"
	FinalsFile  = "finals.jsonl"
	LedgerFile  = "ledger"
	HarmsFile   = "harms.jsonl"
)

// A Report is the result of all checkers for one run.
type Report struct {
	Faults  []Fault
	Calls   int
	Runs    int // executions
	Repeats int // of them, those of an attempt above the first
	Depth   Depth
	Handed  int // handovers of limits
	Gates   Gates
	// Scheduled is what was compared with rates, quotas, labels and GPUs, and what was preempted.
	Scheduled Scheduled
	Answers   Answers
}

// Dir runs all checkers on the directory of a run whose processes have
// ended. Pictures of illegal histories are put into it.
func Dir(dir string) (Report, error) {
	r, err := Load(dir)
	if err != nil {
		return Report{}, err
	}
	report := Report{Calls: len(r.Calls), Handed: Handovers(r), Gates: CountGates(r), Scheduled: CountScheduled(r), Answers: CountAnswers(r)}
	for _, run := range ledger.Runs(r.Lines) {
		report.Runs++
		if run.Attempt > 1 {
			report.Repeats++
		}
	}
	report.Faults = slices.Concat(Account(r), Linear(r, dir))
	var replicas []Replica
	for _, pattern := range []string{storeFile, filepath.Join("*", storeFile)} { // on a disk of its own it is one directory deeper
		stores, err := filepath.Glob(filepath.Join(dir, "n*", pattern))
		if err != nil {
			return report, fmt.Errorf("finding replicas: %w", err)
		}
		for _, path := range stores {
			folder := filepath.Dir(path)
			if strings.Contains(filepath.Base(folder), ".damaged-") {
				continue // quarantined by its replica
			}
			name, err := filepath.Rel(dir, folder)
			if err != nil {
				return report, fmt.Errorf("finding replicas: %w", err)
			}
			replicas = append(replicas, Replica{Name: name, Dir: folder})
		}
	}
	faults, depth, err := Logs(replicas)
	report.Faults, report.Depth = append(report.Faults, faults...), depth
	return report, err
}

// Load reads what a run recorded.
func Load(dir string) (r Record, err error) {
	if r.Plans, err = ReadLines[Plan](filepath.Join(dir, PlansFile)); err != nil {
		return r, err
	}
	if r.Finals, err = ReadLines[Final](filepath.Join(dir, FinalsFile)); err != nil {
		return r, err
	}
	if r.Calls, err = history.Load(filepath.Join(dir, HistoryFile)); err != nil {
		return r, fmt.Errorf("loading run: %w", err)
	}
	if r.Harms, err = ReadLines[ledger.Harm](filepath.Join(dir, HarmsFile)); err != nil {
		return r, err
	}
	if r.Lines, err = ledger.Read(filepath.Join(dir, LedgerFile)); err != nil {
		return r, fmt.Errorf("loading run: %w", err)
	}
	return r, nil
}

// FileDigest is the SHA-256 of a file, in hexadecimal.
func FileDigest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading a program: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
