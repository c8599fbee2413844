package workload

import (
	"math/rand/v2"
	"strconv"

	"github.com/dtask/dtask/test/chaos/check"
	"github.com/dtask/dtask/test/cluster"
)

// Labels that workers have, beside those that each has by itself.
const (
	zoneLabel  = "zone"  // a or b
	shiftLabel = "shift" // early or late; some workers change it when they start
)

// Labels returns those that worker number n, from 1, must declare.
func Labels(n int) map[string]string { return map[string]string{zoneLabel: []string{"b", "a"}[n%2]} }

// Shifts returns the values of the label shift that worker number n, from 1, has from start to
// start. There is always one worker with each.
func Shifts(n int) string { return []string{"early,late", "early", "late"}[n%3] }

// rules chooses what a task requires of a worker. At least one worker fulfills it, if all are up.
func (w *Workload) rules(random *rand.Rand) check.Rules {
	worker := "w" + strconv.Itoa(1+random.IntN(max(1, w.cfg.Workers)))
	all := []check.Rules{
		{"worker": {"*"}},
		{"os": {"linux", "darwin"}, zoneLabel: {"b"}},
		{"host": {"!nowhere"}, zoneLabel: {"!a", "!c"}},
		{"arch": {"!m68k", "!vax"}, "isolation": {"none", "user"}},
		{zoneLabel: {"a"}, "os": {"!plan9"}},
		{zoneLabel: {"a", "c"}},
		{"worker": {worker}},
		{"worker": {"!" + worker}},
	}
	if w.cfg.Shifts {
		all = append(all, check.Rules{shiftLabel: {"early"}}, check.Rules{shiftLabel: {"late", "night"}}, check.Rules{shiftLabel: {"!late"}}, check.Rules{shiftLabel: {"*"}})
	}
	return all[random.IntN(len(all))]
}

// require puts rules into a task.
func require(file cluster.TaskFile, rules check.Rules) {
	all := make(map[string]any)
	for label, values := range rules {
		if all[label] = values; len(values) == 1 {
			all[label] = values[0]
		}
	}
	file["require"] = all
}

// placed makes a task choose its worker by labels that are preferred, all strategies and an
// affinity, and some by alternatives of their resources: a GPU if one is free.
func placed(random *rand.Rand, file cluster.TaskFile) {
	file["prefer"] = map[string]any{"worker": []string{"w1", "worker1"}}
	file["affinity"] = []string{"ann", "ben", "cleo"}[random.IntN(3)]
	file["place"] = []string{"spread", "pack", "random"}[random.IntN(3)]
	if random.IntN(2) == 0 {
		file["resources"] = []map[string]any{{"gpu": 1}, {"cpu": 0.01}}
	}
}
