package workflows

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// What a collection has, as the published one.
const (
	totalGraphs = 167
	totalTasks  = 64_321
)

// Formats of the numbers at the end of IDs.
const (
	pegasusNumber  = "_ID%07d"
	makeflowNumber = "_ID%06d"
	nextflowNumber = "_%d"
)

// A family makes graphs of one shape.
type family struct {
	name   string
	number string
	build  func(b *builder, size int) // makes at most size tasks, and nearly as many
	graphs int
	// smallest and greatest are the sizes of its graphs. Those between are spread evenly
	// over the orders of magnitude.
	smallest, greatest int
}

// families are all families. The last graph of the last one has as many tasks as the
// others leave to the collection.
var families = []family{
	{"montage", pegasusNumber, montage, 13, 58, 5200},
	{"epigenomics", pegasusNumber, epigenomics, 20, 41, 1695},
	{"1000genome", pegasusNumber, genomes1000, 20, 52, 902},
	{"cycles", pegasusNumber, cycles, 13, 67, 1200},
	{"seismology", pegasusNumber, seismology, 11, 101, 1101},
	{"soykb", pegasusNumber, soykb, 10, 96, 676},
	{"srasearch", pegasusNumber, srasearch, 20, 22, 104},
	{"cybershake", pegasusNumber, cybershake, 5, 30, 1000},
	{"blast", makeflowNumber, blast, 15, 43, 303},
	{"bwa", makeflowNumber, bwa, 15, 104, 1004},
	{"nf-core", nextflowNumber, nfcore, 20, 14, 265},
	{"helloworld", nextflowNumber, helloworld, 2, 5, 10},
	{"rosetta", nextflowNumber, rosetta, 3, 40, 100},
}

// Collection makes 167 graphs with 64,321 tasks. The seed decides the sizes of their
// parts, small differences in size, and the order of the tasks.
func Collection(seed uint64) []Graph {
	var graphs []Graph
	rest := totalTasks
	for _, f := range families {
		for i := range f.graphs {
			random := rand.New(rand.NewPCG(seed, uint64(len(graphs))))
			size := f.size(random, i)
			if len(graphs) == totalGraphs-1 {
				size = rest
			}
			g := f.graph(random, i, size)
			rest -= len(g.Tasks)
			graphs = append(graphs, g)
		}
	}
	return graphs
}

// size returns the size of graph i of the family, a few tasks smaller at random.
func (f family) size(random *rand.Rand, i int) int {
	if f.graphs == 1 {
		return f.greatest
	}
	step := float64(i) / float64(f.graphs-1)
	size := int(float64(f.smallest) * math.Pow(float64(f.greatest)/float64(f.smallest), step))
	return max(size-random.IntN(1+size/50), f.smallest)
}

// graph makes graph i of the family.
func (f family) graph(random *rand.Rand, i, size int) Graph {
	b := &builder{random: random, number: f.number}
	f.build(b, size)
	return Graph{Family: f.name, Name: fmt.Sprintf("%s-%02d", f.name, i+1), Tasks: b.shuffle()}
}

// Sample returns n of the graphs with at most tasks tasks in total: the smallest one of
// each family, then its third smallest, its fifth smallest, and so on. It returns fewer if
// these are larger.
func Sample(graphs []Graph, n, tasks int) []Graph {
	bySize := slices.Clone(graphs)
	slices.SortStableFunc(bySize, func(a, b Graph) int { return cmp.Compare(len(a.Tasks), len(b.Tasks)) })
	ofFamily := make(map[string][]Graph)
	for _, g := range bySize {
		ofFamily[g.Family] = append(ofFamily[g.Family], g)
	}
	var sample []Graph
	for at := 0; at < len(graphs); at += 2 {
		for _, f := range families {
			list := ofFamily[f.name]
			if at >= len(list) || len(sample) == n || len(list[at].Tasks) > tasks {
				continue
			}
			tasks -= len(list[at].Tasks)
			sample = append(sample, list[at])
		}
	}
	return sample
}
