package process

import "testing"

// BenchmarkRun is the cost of a program that does nothing: two executions of a
// binary, its supervisor and the program.
func BenchmarkRun(b *testing.B) {
	spec := Spec{Argv: []string{"/bin/true"}, Dir: b.TempDir()}
	for b.Loop() {
		if _, err := Run(b.Context(), spec); err != nil {
			b.Fatal(err)
		}
	}
}
