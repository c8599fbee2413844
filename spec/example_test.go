package spec_test

import (
	"fmt"

	"github.com/dtask/dtask/spec"
)

func ExampleParse() {
	job, err := spec.Parse("sum.yaml", []byte(`
job:
  name: sum
  tasks:
    - {id: add, dependencies: [one, two], run: echo 3}
    - {id: one, run: echo 1}
    - {id: two, run: echo 2}
`), spec.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range job.GetTasks() {
		fmt.Println(t.GetId(), t.GetDependencies())
	}
	fmt.Println("levels:", spec.Levels(job))
	// Output:
	// one []
	// two []
	// add [0 1]
	// levels: [2 1]
}

func ExampleFaults() {
	_, err := spec.Parse("sum.yaml", []byte(`
job:
  name: sum
  tasks:
    - {id: add, dependencies: [on], run: echo 3, timeout: 10}
    - {id: one, rum: echo 1}
`), spec.Options{})
	fmt.Println(err)
	// Output:
	// sum.yaml:5:32: task "add": dependencies: unknown dependency "on"; did you mean "one"?
	// sum.yaml:5:59: task "add": timeout: "10" has no unit; write it like 90s, 1h30m, 2d or 500ms
	// sum.yaml:6:17: task "one": unknown field "rum"; did you mean "run"?
}
