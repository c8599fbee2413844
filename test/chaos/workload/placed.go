package workload

import (
	"math/rand/v2"

	"github.com/dtask/dtask/test/cluster"
)

// placed makes a task choose its worker by labels that each worker has by itself, and by all
// strategies and an affinity, and some by the second alternative of their resources, because
// no worker has the first one. Any one worker is enough for all of them.
func placed(random *rand.Rand, file cluster.TaskFile) {
	rules := []map[string]any{
		{"worker": "*"},
		{"os": []string{"linux", "darwin"}},
		{"host": "!nowhere"},
		{"arch": []string{"!m68k", "!vax"}, "isolation": []string{"none", "user"}},
	}
	file["require"] = rules[random.IntN(len(rules))]
	file["prefer"] = map[string]any{"worker": []string{"w1", "worker1"}}
	file["affinity"] = []string{"ann", "ben", "cleo"}[random.IntN(3)]
	file["place"] = []string{"spread", "pack", "random"}[random.IntN(3)]
	if random.IntN(2) == 0 {
		file["resources"] = []map[string]any{{"gpu": 1}, {"cpu": 0.01}}
	}
}
