package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// reducers is how many reduce tasks stand between the maps and the total.
const reducers = 8

// names of the job and its last task.
const (
	jobName   = "words-of-go"
	totalTask = "total"
)

// fileTask is a task as a job file has it.
type fileTask struct {
	ID           string   `json:"id"`
	Type         string   `json:"type"`
	Dependencies []string `json:"dependencies,omitempty"`
	Inputs       []string `json:"inputs"`
	Output       string   `json:"output"`
}

// plan makes the tasks: one map for each group of files, a few that reduce what
// some of the maps made, and one that reduces theirs. Outputs go into dir.
func plan(groups [][]file, dir string) []fileTask {
	reduce := make([]fileTask, min(reducers, len(groups)))
	last := fileTask{ID: totalTask, Type: "reduce", Output: filepath.Join(dir, "total.json")}
	for i := range reduce {
		id := fmt.Sprintf("reduce-%d", i+1)
		reduce[i] = fileTask{ID: id, Type: "reduce", Output: filepath.Join(dir, id+".json")}
		last.Dependencies = append(last.Dependencies, id)
		last.Inputs = append(last.Inputs, reduce[i].Output)
	}
	var tasks []fileTask
	for i, group := range groups {
		id := fmt.Sprintf("map-%03d", i+1)
		task := fileTask{ID: id, Type: "map", Output: filepath.Join(dir, id+".json")}
		for _, f := range group {
			task.Inputs = append(task.Inputs, f.path)
		}
		tasks = append(tasks, task)
		r := &reduce[i%len(reduce)]
		r.Dependencies = append(r.Dependencies, id)
		r.Inputs = append(r.Inputs, task.Output)
	}
	return append(append(tasks, reduce...), last)
}

// writeJob writes the job file.
func writeJob(path string, tasks []fileTask) error {
	text, err := json.MarshalIndent(map[string]any{
		"version": 1, "job": map[string]any{"name": jobName, "tasks": tasks},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the job file: %w", err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("writing the job file: %w", err)
	}
	return nil
}
