package process_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/dtask/dtask/worker/process"
)

func Example() {
	process.RunSupervisor() // the first line of main

	env, err := process.Environ(process.Vars{JobID: "j1", TaskID: "hello", Attempt: 1}, map[string]string{"GREETING": "hello"})
	if err != nil {
		fmt.Println(err)
		return
	}
	lines := process.NewLines(nil)
	var programs process.Pool // for the whole life of a worker
	defer programs.Close()
	exit, err := programs.Run(context.Background(), process.Spec{
		Argv:      []string{"/bin/sh", "-c", `echo "$GREETING from $DTASK_TASK_ID, attempt $DTASK_ATTEMPT"; exit 75`},
		Env:       env,
		Dir:       os.TempDir(),
		Stdout:    lines,
		KillGrace: 5 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(exit.Code, lines.Finish())
	// Output: 75 hello from hello, attempt 1
}
