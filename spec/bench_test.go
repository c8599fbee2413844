package spec

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkParse reads 10,000 tasks that each depend on the one before.
func BenchmarkParse(b *testing.B) {
	var yaml, json strings.Builder
	yaml.WriteString("job:\n  name: x\n  tasks:\n")
	json.WriteString(`{"job": {"name": "x", "tasks": [`)
	for i := range 10_000 {
		fmt.Fprintf(&yaml, "    - id: task-%d\n      command: [echo, hello, \"%d\"]\n      payload: {n: %d}\n      timeout: 5m\n", i, i, i)
		fmt.Fprintf(&json, `{"id": "task-%d", "command": ["echo", "hello", "%d"], "payload": {"n": %d}, "timeout": "5m"`, i, i, i)
		if i > 0 {
			fmt.Fprintf(&yaml, "      needs: [task-%d]\n", i-1)
			fmt.Fprintf(&json, `, "needs": ["task-%d"]`, i-1)
		}
		json.WriteString("},\n")
	}
	for name, text := range map[string]string{"yaml": yaml.String(), "json": strings.TrimSuffix(json.String(), ",\n") + "]}}"} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse("f", []byte(text), Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
