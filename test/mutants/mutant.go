package mutants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// A Mutant is one planted bug.
type Mutant struct {
	Name  string // what the code does now, in a few hyphenated words
	Edits []Edit
	// Caught names the checkers that must fail: any of them is enough. They are tried
	// in order.
	Caught []Checker
}

// An Edit replaces a text that occurs exactly once in a file.
type Edit struct {
	File     string // relative to the module's root
	Old, New string
}

// A Checker is a run of tests.
type Checker struct {
	Package string   // "./fsm"
	Run     string   // expression for -run
	Args    []string // of the compiled test, such as -test.short
}

// All returns every planted bug.
func All() []Mutant {
	var all []Mutant
	groups := [][]Mutant{
		inState(), inLevels(), inTotals(), inIdentities(), inConditions(), inCalendar(), inClocks(), inSchedules(), inGates(), inRunning(), inSequencer(), inStorage(), inSegments(), inCommitted(),
		inOffline(), inBackup(), inRevocationsAndEncryption(), inBackupSchedule(), inTemplates(), inDeployment(), inOperators(), inLeading(), inRights(), inExplain(), inChanges(), inEstimates(), inPlan(), inPlacement(), inLabels(), inGPUs(), inQueues(), inReservations(), inPreemption(), inLimits(), inWorkers(), inChangingWorkers(), inOrder(), inSupervisors(),
		inRunAs(), inOutput(), notificationMutants(),
	}
	for _, group := range groups {
		all = append(all, group...)
	}
	return all
}

// Mutate returns the changed contents of the files that a mutant touches, by path
// from the module's root.
func (m *Mutant) Mutate(root string) (map[string][]byte, error) {
	files := make(map[string][]byte)
	for _, e := range m.Edits {
		text, ok := files[e.File]
		if !ok {
			var err error
			if text, err = os.ReadFile(filepath.Join(root, e.File)); err != nil { //nolint:gosec // of the table above
				return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
			}
		}
		if n := bytes.Count(text, []byte(e.Old)); n != 1 {
			return nil, fmt.Errorf("mutant %s: its text occurs %d times in %s, want 1:\n%s", m.Name, n, e.File, e.Old)
		}
		files[e.File] = bytes.Replace(text, []byte(e.Old), []byte(e.New), 1)
	}
	return files, nil
}

// Overlay writes a mutant into dir and returns the path of a file for the go
// command's -overlay flag.
func (m *Mutant) Overlay(root, dir string) (string, error) {
	files, err := m.Mutate(root)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for name, text := range files {
		changed := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(changed, text, 0o600); err != nil {
			return "", fmt.Errorf("mutant %s: %w", m.Name, err)
		}
		replace[filepath.Join(root, name)] = changed
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	return path, nil
}
