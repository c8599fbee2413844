package worker_test

import (
	"context"
	"fmt"

	"github.com/dtask/dtask/worker"
)

// A program with a handler of its own is a worker: tasks of type greet run
// here.
func ExampleWorker_Handle() {
	w, err := worker.New(worker.Config{Join: []string{"127.0.0.1:7460"}, Name: "greeter"})
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Handle("greet", func(_ context.Context, t *worker.Task) ([]byte, error) {
		return fmt.Appendf(nil, "hello %s", t.Payload), nil
	})
	fmt.Println("w.Run(ctx) executes tasks until ctx is done, then drains")
	// Output: w.Run(ctx) executes tasks until ctx is done, then drains
}
