package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A job of one task is submitted, waited for, and its result printed.
func Example() {
	run := func(ctx context.Context) error {
		c, err := client.New(client.Config{Addrs: []string{"127.0.0.1:7460", "127.0.0.1:7470"}, Timeout: time.Minute})
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()

		job := &dtaskv1.JobSpec{
			Header: &dtaskv1.JobHeader{
				Name: "primes", Priority: dtaskv1.Priority_PRIORITY_NORMAL, OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP,
				Policies: []*dtaskv1.TaskPolicy{{Type: "prime", TimeoutMs: 60_000, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE}},
			},
			Tasks: []*dtaskv1.TaskSpec{{Id: "check", Body: &dtaskv1.TaskBody{Payload: []byte("999999937")}}},
		}
		submitted, err := c.Submit(ctx, job, client.SubmitOptions{Key: "primes-2026-05-01"})
		if err != nil {
			return err
		}
		if _, err = c.Wait(ctx, submitted.ID); err != nil {
			return err
		}
		result, err := c.Result(ctx, submitted.ID)
		if err != nil {
			return err
		}
		for _, task := range result.GetResults() {
			fmt.Printf("%s: %s\n", task.GetTask(), task.GetResult())
		}
		return nil
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel() // nobody listens where the examples run
	fmt.Println(errors.Is(run(ctx), context.Canceled))
	// Output: true
}
