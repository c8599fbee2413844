package process

import "testing"

// BenchmarkRun is the cost of a program that does nothing, under a supervisor
// that has run others.
func BenchmarkRun(b *testing.B) {
	spec := Spec{Argv: []string{"/bin/true"}, Dir: b.TempDir()}
	for b.Loop() {
		if _, err := programs.Run(b.Context(), spec); err != nil {
			b.Fatal(err)
		}
	}
}
