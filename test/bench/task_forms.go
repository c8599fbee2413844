package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// A taskForm is a kind of tasks that takes turns with others.
type taskForm struct {
	what   string
	target string              // of its ratio to the first form; empty: none
	keys   int                 // of affinity, which take turns; 0: none
	policy *dtaskv1.TaskPolicy // of which only resources and alternatives matter; nil: neither
	queue  string              // empty: the default one
}

// job returns a job of n tasks of a type.
func (f taskForm) job(n int, typ, payload string) (*dtaskv1.JobSpec, error) {
	job, err := spec.Single(spec.SingleTask{Type: typ, Payload: []byte(payload), Name: "measured"})
	if err != nil {
		return nil, fmt.Errorf("building job: %w", err)
	}
	job.Header.Queue = f.queue
	policies := job.GetHeader().GetPolicies()
	policies[0].Resources, policies[0].Alternatives = f.policy.GetResources(), f.policy.GetAlternatives()
	for k := range f.keys {
		job.Header.Policies = append(job.Header.Policies, withKey(policies[0], fmt.Sprintf("user/%d", k)))
	}
	body := job.GetTasks()[0].GetBody()
	job.Tasks = make([]*dtaskv1.TaskSpec, n)
	for i := range job.GetTasks() {
		job.Tasks[i] = &dtaskv1.TaskSpec{Id: fmt.Sprintf("t%06d", i), Body: body}
		if f.keys > 0 {
			job.Tasks[i].Policy = uint32(1 + i%f.keys) //nolint:gosec // small
		}
	}
	return job, nil
}

// jobRate returns how many tasks a second a job of n tasks has.
func jobRate(ctx context.Context, cl *client.Client, n int, f taskForm, typ, payload string) (float64, error) {
	job, err := f.job(n, typ, payload)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	submitted, err := cl.Submit(ctx, job, client.SubmitOptions{})
	if err != nil {
		return 0, fmt.Errorf("submitting the job: %w", err)
	}
	ended, err := cl.Wait(ctx, submitted.ID)
	if err != nil {
		return 0, fmt.Errorf("waiting for the job: %w", err)
	}
	if ended.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED {
		return 0, fmt.Errorf("the job ended as %v, want completed", ended.GetState())
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// inTurns measures all forms in each round. The first round warms up.
func (b *bench) inTurns(forms []taskForm, measure func(taskForm) (float64, error)) ([][]float64, error) {
	rates := make([][]float64, len(forms))
	for round := range b.rounds + 1 {
		for i, f := range forms {
			rate, err := measure(f)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.what, err)
			}
			if round > 0 {
				rates[i] = append(rates[i], rate)
			}
		}
	}
	return rates, nil
}

// compareForms adds a row for each form, with its ratio to the first one.
func (b *bench) compareForms(prefix, setting string, forms []taskForm, rates [][]float64) {
	first := prefix + forms[0].what
	b.table.add(first, "tasks/s", setting, rates[0]...)
	for i, f := range forms[1:] {
		setting := "in turns with the rows above"
		if f.target != "" {
			setting += "; target: " + f.target
		}
		b.table.compare("  "+f.what, "tasks/s", setting, first, rates[i+1]...)
	}
}
