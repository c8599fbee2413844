package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/dtask/dtask/worker"
)

// newWorker returns a worker of an example's coordinator.
func newWorker(c *coordinator, dir string) *worker.Worker {
	w, err := worker.New(worker.Config{Join: []string{"localhost:7460"}, Name: "w1", Slots: 1, WorkDir: dir}, worker.WithDialer(c.Dial))
	if err != nil {
		panic(err)
	}
	return w
}

// A program that registers handlers is a worker. SIGTERM drains it: running
// tasks finish, and all outcomes are acknowledged before Run returns.
func Example() { //nolint:testableexamples // runs until a signal arrives
	w, err := worker.New(worker.Config{Join: []string{"localhost:7460"}, Name: "resizer"})
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Handle("resize", func(_ context.Context, _ *worker.Task) ([]byte, error) {
		// … resize the image that the payload names, and return a small result …
		return []byte("640x480"), nil
	})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := w.Run(ctx); err != nil {
		fmt.Println(err)
	}
}

// A job file selects a handler by the type of its tasks.
func ExampleWorker_Handle() {
	coordinator := startCoordinator(task{Type: "greet", Payload: "world"})
	dir, remove := tempDir()
	defer remove()
	w := newWorker(coordinator, dir)

	w.Handle("greet", func(_ context.Context, t *worker.Task) ([]byte, error) {
		return fmt.Appendf(nil, "hello %s", t.Payload), nil
	})

	coordinator.Finish(w)
	// Output: task 0: succeeded: hello world
}

// New returns all problems of a configuration.
func ExampleNew() {
	_, err := worker.New(worker.Config{Join: []string{"localhost"}, Name: "no spaces", Slots: -1})
	fmt.Println(err)
	// Output:
	// invalid --join "localhost": must be HOST:PORT
	// invalid --name "no spaces": must be 1–63 letters, digits, dots, dashes and underscores
	// invalid --slots -1: must be 1–65535
}

// Slots bound the concurrent attempts of a worker. Tasks select workers by
// their labels, and reserve resources.
func ExampleConfig() {
	_, err := worker.New(worker.Config{
		Join:         []string{"127.0.0.1:7461", "127.0.0.1:7462", "127.0.0.1:7463"},
		Name:         "gpu-7",
		Slots:        4,
		Labels:       map[string]string{"zone": "eu", "disk": "ssd"},
		Resources:    map[string]int64{"gpu": 2_000, "license": 1_000}, // in thousandths: 2 GPUs, 1 license
		DrainTimeout: time.Minute,
	}, worker.WithLogger(slog.Default()))
	fmt.Println(err)
	// Output: <nil>
}

// A fatal error fails the task immediately, whatever its retry policy.
func ExampleFatal() {
	coordinator := startCoordinator(task{Type: "parse", Payload: "not a number"})
	dir, remove := tempDir()
	defer remove()
	w := newWorker(coordinator, dir)

	w.Handle("parse", func(_ context.Context, t *worker.Task) ([]byte, error) {
		if _, err := strconv.Atoi(string(t.Payload)); err != nil {
			return nil, worker.Fatal(errors.New("payload is not a number")) // a retry cannot help
		}
		return t.Payload, nil
	})

	coordinator.Finish(w)
	// Output: task 0: failed (fatal): payload is not a number
}

// A retryable error is retried even if the retry policy excludes its class.
func ExampleRetryable() {
	coordinator := startCoordinator(task{Type: "fetch"})
	dir, remove := tempDir()
	defer remove()
	w := newWorker(coordinator, dir)

	w.Handle("fetch", func(context.Context, *worker.Task) ([]byte, error) {
		return nil, worker.Retryable(errors.New("mirror is being updated"))
	})

	coordinator.Finish(w)
	// Output: task 0: failed (always retried): mirror is being updated
}

// A job file refers to the class of an error in retry.on and retry.except, here
// as error:not_found.
func ExampleNamed() {
	coordinator := startCoordinator(task{Type: "fetch", Payload: "page"})
	dir, remove := tempDir()
	defer remove()
	w := newWorker(coordinator, dir)

	w.Handle("fetch", func(_ context.Context, t *worker.Task) ([]byte, error) {
		return nil, worker.Named("not_found", fmt.Errorf("%s: %d", t.Payload, http.StatusNotFound))
	})

	coordinator.Finish(w)
	// Output: task 0: failed [not_found]: page: 404
}

// A handler that wraps a program reports its exit code, which retry.on and
// retry.except may contain.
func ExampleExit() {
	coordinator := startCoordinator(task{Type: "convert"})
	dir, remove := tempDir()
	defer remove()
	w := newWorker(coordinator, dir)

	w.Handle("convert", func(context.Context, *worker.Task) ([]byte, error) {
		return nil, worker.Exit(3, errors.New("unsupported format"))
	})

	coordinator.Finish(w)
	// Output: task 0: failed [exit code 3]: unsupported format
}

// The context of a handler ends if the task is cancelled, times out or is
// superseded, or if the worker stops. context.Cause returns the reason.
func ExampleHandler_cancellation() {
	coordinator := startCoordinator(task{Type: "wait", TimeoutMS: 10})
	dir, remove := tempDir()
	defer remove()
	w := newWorker(coordinator, dir)

	w.Handle("wait", func(ctx context.Context, _ *worker.Task) ([]byte, error) {
		<-ctx.Done()
		fmt.Println("timed out:", errors.Is(context.Cause(ctx), worker.ErrTimedOut))
		return nil, context.Cause(ctx)
	})

	coordinator.Finish(w)
	// Output:
	// timed out: true
	// task 0: timed_out: timed out: ran for 10ms
}

// Progress is shown to users, and restarts the task's heartbeat timeout.
func ExampleTask_Progress() {
	handler := func(ctx context.Context, t *worker.Task) ([]byte, error) {
		const files = 4
		for i := range files {
			if ctx.Err() != nil { // cancelled, or out of time
				return nil, context.Cause(ctx)
			}
			// … process file i …
			t.Progress(float64(i+1)/files, fmt.Sprintf("%d of %d files", i+1, files))
		}
		return []byte("done"), nil
	}
	result, err := handler(context.Background(), &worker.Task{})
	fmt.Println(string(result), err)
	// Output: done <nil>
}

// A long task saves its position, and the next attempt continues there, on any
// worker.
func ExampleSaveCheckpoint() {
	coordinator := startCoordinator(task{Type: "count", Attempt: 2, Checkpoint: "7"})
	dir, remove := tempDir()
	defer remove()
	w := newWorker(coordinator, dir)

	w.Handle("count", func(ctx context.Context, _ *worker.Task) ([]byte, error) {
		start, _ := strconv.Atoi(string(worker.LastCheckpoint(ctx))) // 0 in the first attempt
		for i := start; i < 10; i++ {
			fmt.Println("step", i)
			if err := worker.SaveCheckpoint(ctx, []byte(strconv.Itoa(i+1))); err != nil {
				return nil, err
			}
		}
		return []byte("done"), nil
	})

	coordinator.Finish(w)
	// Output:
	// step 7
	// step 8
	// step 9
	// task 0: succeeded: done
}

// An output becomes visible under its final name only after the attempt has
// succeeded, complete and synced.
func ExampleTask_output() {
	dir, remove := tempDir()
	defer remove()
	final := filepath.Join(dir, "report.txt")
	coordinator := startCoordinator(task{Type: "report", Output: final})
	w := newWorker(coordinator, filepath.Join(dir, "work"))

	w.Handle("report", func(_ context.Context, t *worker.Task) ([]byte, error) {
		return nil, os.WriteFile(t.Output, []byte("all good"), 0o600) // a temporary file beside the final one
	})

	coordinator.Finish(w)
	text, err := os.ReadFile(final)
	fmt.Println(string(text), err)
	// Output:
	// task 0: succeeded:
	// all good <nil>
}

// A task of an array is executed for each of its items, which the job file
// lists.
func ExampleTask_array() {
	coordinator := startCoordinator(task{Type: "resize", Items: []string{`"a.png"`, `"b.png"`}})
	dir, remove := tempDir()
	defer remove()
	w := newWorker(coordinator, dir)

	w.Handle("resize", func(_ context.Context, t *worker.Task) ([]byte, error) {
		var name string
		if err := json.Unmarshal(t.Item, &name); err != nil {
			return nil, worker.Fatal(err)
		}
		fmt.Println(*t.ArrayIndex, name)
		return []byte("ok"), nil
	})

	coordinator.Finish(w)
	// Output:
	// 0 a.png
	// 1 b.png
	// task 0: succeeded: ["ok","ok"]
}

// A task may be executed more than once. Services that support idempotency keys
// then perform its effect once; storage that checks fencing tokens rejects the
// writes of attempts that have been superseded.
func ExampleTask_IdempotencyKey() {
	coordinator := startCoordinator(task{Type: "charge", Attempt: 3})
	dir, remove := tempDir()
	defer remove()
	w := newWorker(coordinator, dir)

	w.Handle("charge", func(ctx context.Context, t *worker.Task) ([]byte, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://payments.example/charges", nil)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Idempotency-Key", t.IdempotencyKey()) // the same for all attempts
		fmt.Println("key:", request.Header.Get("Idempotency-Key"))
		fmt.Println("attempt:", t.ExecutionID(), "token:", t.FencingToken) // both differ for each attempt
		return nil, nil
	})

	coordinator.Finish(w)
	// Output:
	// key: c1-42-0
	// attempt: 42-0-3 token: 4294967299
	// task 0: succeeded:
}

// A handler is an ordinary function: a test calls it with a task of its own.
func ExampleHandler_testing() {
	double := func(_ context.Context, t *worker.Task) ([]byte, error) {
		n, err := strconv.Atoi(string(t.Payload))
		if err != nil {
			return nil, worker.Fatal(err)
		}
		return strconv.AppendInt(nil, int64(2*n), 10), nil
	}
	result, err := double(context.Background(), &worker.Task{ID: "t1", Attempt: 1, Payload: []byte("21")})
	fmt.Println(string(result), err)
	// Output: 42 <nil>
}

// The workers of one process share one connection and one stream to each
// coordinator.
func ExampleWithConnections() {
	coordinator := startCoordinator(task{Type: "greet", Payload: "a"}, task{Type: "greet", Payload: "b"})
	dir, remove := tempDir()
	defer remove()

	conns := worker.NewConnections()
	var workers []*worker.Worker
	for _, name := range []string{"w1", "w2", "w3"} {
		w, err := worker.New(worker.Config{Join: []string{"localhost:7460"}, Name: name, Slots: 1, WorkDir: filepath.Join(dir, name)},
			worker.WithConnections(conns), worker.WithDialer(coordinator.Dial))
		if err != nil {
			fmt.Println(err)
			return
		}
		w.Handle("greet", func(_ context.Context, t *worker.Task) ([]byte, error) {
			return fmt.Appendf(nil, "hello %s", t.Payload), nil
		})
		workers = append(workers, w)
	}

	coordinator.Finish(workers...)
	// Output:
	// task 0: succeeded: hello a
	// task 1: succeeded: hello b
}
