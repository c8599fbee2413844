package workflows

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A shape is what a family's comment describes, in terms that can be checked: the number
// of levels, and for each kind of task the number and kind of its dependencies. "all" is
// all tasks of that kind in the graph, and "some" at least one.
type shape struct {
	levels [2]int // least and most
	after  map[string]string
}

var shapes = map[string]shape{
	"montage": {[2]int{8, 8}, map[string]string{
		"mProject": "", "mDiffFit": "2 mProject", "mConcatFit": "some mDiffFit", "mBgModel": "1 mConcatFit",
		"mBackground": "1 mProject, 1 mBgModel", "mImgtbl": "some mBackground", "mAdd": "some mBackground, 1 mImgtbl",
		"mViewer": "some mAdd",
	}},
	"epigenomics": {[2]int{9, 9}, map[string]string{
		"fastqSplit": "", "filterContams": "1 fastqSplit", "sol2sanger": "1 filterContams", "fast2bfq": "1 sol2sanger",
		"map": "1 fast2bfq", "mapMerge": "some map", "mapMergeAll": "all mapMerge", "chr21": "1 mapMergeAll", "pileup": "1 chr21",
	}},
	"1000genome": {[2]int{3, 3}, map[string]string{
		"individuals": "", "sifting": "", "individuals_merge": "some individuals",
		"mutation_overlap": "1 individuals_merge, 1 sifting", "frequency": "1 individuals_merge, 1 sifting",
	}},
	"cycles": {[2]int{4, 4}, map[string]string{
		"baseline_cycles": "", "cycles": "1 baseline_cycles", "fertilizer_increase_cycles": "1 baseline_cycles",
		"cycles_fertilizer_increase_output_parser":  "1 cycles, 1 fertilizer_increase_cycles",
		"cycles_output_summary":                     "some cycles",
		"cycles_fertilizer_increase_output_summary": "some cycles_fertilizer_increase_output_parser",
		"cycles_plots":                              "all cycles_output_summary",
	}},
	"seismology": {[2]int{2, 2}, map[string]string{"sG1IterDecon": "", "wrapper_siftSTFByMisfit": "all sG1IterDecon"}},
	"soykb": {[2]int{11, 11}, map[string]string{
		"alignment_to_reference": "", "sort_sam": "1 alignment_to_reference", "dedup": "1 sort_sam", "add_replace": "1 dedup",
		"realign_target_creator": "1 add_replace", "indel_realign": "1 realign_target_creator, 1 add_replace",
		"haplotype_caller": "1 indel_realign", "merge_gcvf": "all haplotype_caller", "genotype_gvcfs": "some haplotype_caller",
		"combine_variants": "all genotype_gvcfs", "select_variants_snp": "1 combine_variants",
		"select_variants_indel": "1 combine_variants", "filtering_snp": "1 select_variants_snp", "filtering_indel": "1 select_variants_indel",
	}},
	"srasearch": {[2]int{3, 4}, map[string]string{
		"bowtie2-build": "", "fasterq-dump": "", "bowtie2": "1 bowtie2-build, 1 fasterq-dump", "merge": "some bowtie2", "mergeAll": "all merge",
	}},
	"cybershake": {[2]int{4, 4}, map[string]string{
		"ExtractSGT": "", "SeismogramSynthesis": "1 ExtractSGT", "PeakValCalcOkaya": "1 SeismogramSynthesis",
		"ZipSeis": "all SeismogramSynthesis", "ZipPSA": "all PeakValCalcOkaya",
	}},
	"blast": {[2]int{3, 3}, map[string]string{
		"split_fasta": "", "blastall": "1 split_fasta", "cat_blast": "all blastall", "cat": "all blastall",
	}},
	"bwa": {[2]int{3, 3}, map[string]string{
		"fastq_reduce": "", "bwa_index": "", "bwa": "1 fastq_reduce, 1 bwa_index", "cat_bwa": "all bwa", "cat": "all bwa",
	}},
	"nf-core": {[2]int{7, 7}, map[string]string{
		samplesheet: "", annotation: "", alignIndex: "", versions: "",
		rawQuality: "1 " + samplesheet, trim: "1 " + samplesheet, align: "1 " + trim + ", 1 " + alignIndex, sortBam: "1 " + align,
		indexBam: "1 " + sortBam, bamStats: "1 " + sortBam + ", 1 " + indexBam, replicates: "some " + sortBam,
		mergedStats: "1 " + replicates, consensus: "all " + replicates + ", 1 " + annotation,
		multiqc: "all " + rawQuality + ", all " + bamStats + ", all " + mergedStats + ", 1 " + consensus + ", 1 " + versions,
	}},
	"helloworld": {[2]int{3, 5}, map[string]string{"chain": "some chain", "fork": "", "work": "1 fork", "join": "all work"}},
	"rosetta":    {[2]int{1, 1}, map[string]string{"rosetta.linuxgccrelease": ""}},
}

func TestEveryFamilyHasItsShape(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds {
		for _, g := range Collection(seed) {
			want, known := shapes[g.Family]
			if !known {
				t.Fatalf("family %s has no shape in this test", g.Family)
			}
			if levels := levelsOf(t, g); levels < want.levels[0] || levels > want.levels[1] {
				t.Errorf("seed %d: %s has %d levels, want %v", seed, g.Name, levels, want.levels)
			}
			checkKinds(t, g, want)
		}
	}
}

// levelsOf returns the number of levels of a graph, and fails the test if an ID is not
// unique, a dependency is unknown or repeated, or there is a cycle.
func levelsOf(t *testing.T, g Graph) int {
	t.Helper()
	missing, after := map[string]int{}, map[string][]string{} // dependencies to go, and tasks that depend on one
	for _, task := range g.Tasks {
		if _, twice := missing[task.ID]; twice {
			t.Fatalf("%s: duplicate ID %s", g.Name, task.ID)
		}
		missing[task.ID] = len(task.After)
		sorted := slices.Sorted(slices.Values(task.After))
		if len(slices.Compact(sorted)) != len(task.After) {
			t.Fatalf("%s: %s has a duplicate dependency", g.Name, task.ID)
		}
		for _, id := range task.After {
			after[id] = append(after[id], task.ID)
		}
	}
	var level []string
	for id, n := range missing {
		if n == 0 {
			level = append(level, id)
		}
	}
	levels, done := 0, 0
	for ; len(level) > 0; levels++ {
		done += len(level)
		var next []string
		for _, id := range level {
			for _, dependent := range after[id] {
				if missing[dependent]--; missing[dependent] == 0 {
					next = append(next, dependent)
				}
			}
		}
		level = next
	}
	if done != len(g.Tasks) {
		t.Fatalf("%s: %d of %d tasks are in a cycle, or depend on an unknown task", g.Name, len(g.Tasks)-done, len(g.Tasks))
	}
	return levels
}

// checkKinds checks the number of dependencies of each task on tasks of each kind.
func checkKinds(t *testing.T, g Graph, want shape) {
	t.Helper()
	kinds, total := map[string]string{}, map[string]int{}
	for _, task := range g.Tasks {
		kinds[task.ID] = task.Kind
		total[task.Kind]++
	}
	for _, task := range g.Tasks {
		rule, known := want.after[task.Kind]
		if !known {
			t.Fatalf("%s: unknown kind %s", g.Name, task.Kind)
		}
		got := map[string]int{}
		for _, id := range task.After {
			got[kinds[id]]++
		}
		if task.Kind == "chain" && len(task.After) == 0 {
			continue // the first task of the chain
		}
		if fault := compareKinds(got, total, rule); fault != "" {
			t.Fatalf("%s: %s: %s, want %q", g.Name, task.ID, fault, rule)
		}
	}
}

// compareKinds compares the dependencies of a task, counted by kind, with a rule.
func compareKinds(got, total map[string]int, rule string) (fault string) {
	parts := 0
	for part := range strings.SplitSeq(rule, ", ") {
		number, kind, found := strings.Cut(part, " ")
		if !found {
			continue // no dependencies
		}
		parts++
		n := got[kind]
		switch {
		case number == "some" && n > 0, number == "all" && n == total[kind] && n > 0, number == fmt.Sprint(n):
		default:
			return fmt.Sprintf("%d dependencies on %s of %d", n, kind, total[kind])
		}
	}
	if len(got) != parts {
		return fmt.Sprintf("depends on %v", got)
	}
	return ""
}
