package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// connect returns a client of a coordinator that runs in this process.
// Programs use client.New with the addresses of their cluster.
func connect() (c *client.Client, stop func()) {
	dial, stopCoordinator := client.DialExample()
	c, err := client.New(client.Config{Dial: dial})
	if err != nil {
		panic(err)
	}
	return c, func() { _ = c.Close(); stopCoordinator() }
}

// primesJob returns a job of one task that a worker with the handler "prime"
// runs.
func primesJob(name string) *dtaskv1.JobSpec {
	return &dtaskv1.JobSpec{
		Header: &dtaskv1.JobHeader{
			Name: name, Priority: dtaskv1.Priority_PRIORITY_NORMAL, OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP,
			Policies: []*dtaskv1.TaskPolicy{{Type: "prime", TimeoutMs: 60_000, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE}},
		},
		Tasks: []*dtaskv1.TaskSpec{{Id: "check", Body: &dtaskv1.TaskBody{Payload: []byte("999999937")}}},
	}
}

// A job of one task is submitted and waited for, and its result is printed.
func Example() {
	dial, stop := client.DialExample() // a coordinator in this process; omit Dial to use TCP
	defer stop()
	c, err := client.New(client.Config{Addrs: []string{"127.0.0.1:7460", "127.0.0.1:7470"}, Timeout: time.Minute, Dial: dial})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()

	ctx := context.Background()
	job := &dtaskv1.JobSpec{
		Header: &dtaskv1.JobHeader{
			Name: "primes", Priority: dtaskv1.Priority_PRIORITY_NORMAL, OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP,
			Policies: []*dtaskv1.TaskPolicy{{Type: "prime", TimeoutMs: 60_000, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE}},
		},
		Tasks: []*dtaskv1.TaskSpec{{Id: "check", Body: &dtaskv1.TaskBody{Payload: []byte("999999937")}}},
	}
	submitted, err := c.Submit(ctx, job, client.SubmitOptions{Key: "primes-2026-05-01"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err = c.Wait(ctx, submitted.ID); err != nil {
		fmt.Println(err)
		return
	}
	result, err := c.Result(ctx, submitted.ID, client.ReadOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, task := range result.GetResults() {
		fmt.Printf("%s: %s\n", task.GetTask(), task.GetResult())
	}
	// Output: check: prime
}

// The same idempotency key returns the stored job, however often it is
// submitted.
func ExampleClient_Submit() {
	c, stop := connect()
	defer stop()
	for range 2 {
		got, err := c.Submit(context.Background(), primesJob("primes"), client.SubmitOptions{Key: "order-1234"})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("job %s, existed: %t\n", got.ID, got.Existed)
	}
	// Output:
	// job 1, existed: false
	// job 1, existed: true
}

// The error of a submission tells what to do.
func ExampleError() {
	c, stop := connect()
	defer stop()
	_, err := c.Submit(context.Background(), primesJob("a b"), client.SubmitOptions{})
	var e *client.Error
	switch {
	case err == nil:
		fmt.Println("stored")
	case !errors.As(err, &e): // the context ended, or the client is closed
		fmt.Println(err)
	case errors.Is(e, client.ErrInvalid): // correct the job
		for _, fault := range e.Faults {
			fmt.Println(fault)
		}
	case errors.Is(e, client.ErrConflict): // the key belongs to another job
		fmt.Println("use another key")
	case errors.Is(e, client.ErrBusy): // not stored: submit again later, with the same key
		fmt.Println("overloaded; retry with key", e.Key)
	case errors.Is(e, client.ErrUnreachable): // may be stored if e.Unknown: submit again with the same key
		fmt.Println("unreachable; retry with key", e.Key)
	default:
		fmt.Println(e.Message)
	}
	// Output: job.name: "a b" contains the character ' '
}

// Many small jobs share messages. Each has its own result.
func ExampleClient_SubmitMany() {
	c, stop := connect()
	defer stop()
	jobs := []client.Submission{{Job: primesJob("first")}, {Job: primesJob("a b")}, {Job: primesJob("third")}}
	for i, got := range c.SubmitMany(context.Background(), jobs) {
		if got.Err != nil {
			fmt.Printf("%d: %v\n", i, got.Err)
			continue
		}
		fmt.Printf("%d: job %s\n", i, got.ID)
	}
	// Output:
	// 0: job 1
	// 1: submitting the job: invalid job: job.name: "a b" contains the character ' '
	// 2: job 1
}

// Watch yields a job whenever it changes, until it has ended.
func ExampleClient_Watch() {
	c, stop := connect()
	defer stop()
	for job, err := range c.Watch(context.Background(), "1") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d of %d tasks completed\n", job.GetTasksCompleted(), job.GetTasksTotal())
	}
	// Output:
	// 0 of 2 tasks completed
	// 1 of 2 tasks completed
	// 2 of 2 tasks completed
}

// WaitSubmitted waits for many jobs with one call.
func ExampleClient_WaitSubmitted() {
	c, stop := connect()
	defer stop()
	jobs := []client.Submitted{{ID: "1", Index: 7}, {ID: "2", Index: 8}}
	for ends, err := range c.WaitSubmitted(context.Background(), jobs) {
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, job := range ends.Jobs {
			fmt.Println("job", job.GetId(), "ended")
		}
	}
	// Output:
	// job 1 ended
	// job 2 ended
}

// A job that is unknown or has expired is ErrNotFound.
func ExampleClient_Job() {
	c, stop := connect()
	defer stop()
	for _, id := range []string{"1", "2"} {
		job, err := c.Job(context.Background(), id, client.ReadOptions{})
		if errors.Is(err, client.ErrNotFound) {
			fmt.Println("not found:", id)
			continue
		} else if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(job.GetName(), client.Ended(job.GetState()))
	}
	// Output:
	// primes true
	// not found: 2
}

// Failed jobs of one owner are listed, newest first.
func ExampleClient_Jobs() {
	c, stop := connect()
	defer stop()
	filter := client.JobFilter{Owner: "data", States: []dtaskv1.JobState{dtaskv1.JobState_JOB_STATE_FAILED}, Limit: 10}
	for job, err := range c.Jobs(context.Background(), filter) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s %s: %d of %d tasks completed\n", job.GetId(), job.GetName(), job.GetTasksCompleted(), job.GetTasksTotal())
	}
	// Output: 1 primes: 1 of 2 tasks completed
}

// A job is cancelled; a task that has ended can't be.
func ExampleClient_Cancel() {
	c, stop := connect()
	defer stop()
	already, err := c.Cancel(context.Background(), "1", "", "superseded")
	fmt.Println(already, err)
	_, err = c.Cancel(context.Background(), "1", "check", "superseded")
	fmt.Println(errors.Is(err, client.ErrConflict))
	// Output:
	// false <nil>
	// true
}

// Tasks that have not started get a higher priority.
func ExampleClient_Update() {
	c, stop := connect()
	defer stop()
	updated, err := c.Update(context.Background(), &dtaskv1.UpdateRequest{Job: "1", Priority: dtaskv1.Priority_PRIORITY_HIGH, IfVersion: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("version", updated.Version)
	// Output: version 2
}

// The dead letters of a job are listed, and their tasks are retried.
func ExampleClient_DeadLetters() {
	c, stop := connect()
	defer stop()
	var tasks []string
	for letter, err := range c.DeadLetters(context.Background(), client.DeadLetterFilter{Job: "1"}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s failed %d times: %s\n", letter.GetTask(), letter.GetAttempts(), letter.GetError())
		tasks = append(tasks, letter.GetTask())
	}
	retried, err := c.Retry(context.Background(), &dtaskv1.RetryRequest{Job: "1", Tasks: tasks})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ended:", client.Ended(retried.Job.GetState()))
	// Output:
	// check failed 4 times: exit code 3
	// ended: false
}

// The output of the last attempt of a task is copied to standard output.
func ExampleClient_Logs() {
	c, stop := connect()
	defer stop()
	if _, err := c.Logs(context.Background(), client.LogsRequest{Job: "1", Task: "check", Attempt: 1, Stdout: os.Stdout}); err != nil {
		fmt.Println(err)
	}
	// Output: 999999937 is prime
}

// The workers are listed, and one of them is drained before maintenance.
func ExampleClient_DrainWorker() {
	c, stop := connect()
	defer stop()
	for w, err := range c.Workers(context.Background(), client.WorkerFilter{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s is %s and runs %d of %d\n", w.GetName(), w.GetState(), w.GetRunning(), w.GetSlots())
	}
	w, err := c.DrainWorker(context.Background(), "w1", 10*time.Minute, "maintenance")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("w1 is", w.GetState())
	// Output:
	// w1 is up and runs 3 of 8
	// w2 is draining and runs 0 of 8
	// w1 is draining
}

// The status of the cluster names its leader and its members.
func ExampleClient_ClusterStatus() {
	c, stop := connect()
	defer stop()
	status, err := c.ClusterStatus(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("leader", status.GetLeader(), "in term", status.GetTerm())
	for _, m := range status.GetMembers() {
		fmt.Println(m.GetId(), m.GetState())
	}
	// Output:
	// leader n1 in term 4
	// n1 leader
	// n2 follower
	// n3 follower
}
