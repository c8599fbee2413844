package workflows

import (
	"fmt"
	"slices"
)

// epigenomics is Epigenomics, a map of the methylation of a genome (WfCommons, Pegasus).
// One to seven lanes are split. Each part goes through a chain of four tasks, the last of
// which maps it, and the parts of a lane are merged. The lanes are merged, too, and two
// tasks follow. There are 9 levels, mostly chains. IDs name the lane and the part.
func epigenomics(b *builder, size int) {
	lanes := min(1+size/100, 7)
	parts := max((size-3-2*lanes)/4, lanes)
	const sample = "HEP2_MSP1_Digests"
	var merged []string
	for lane, width := range b.divide(parts, lanes) {
		of := fmt.Sprintf("%s_s_%d_sequence", sample, lane+1)
		split := b.addNamed("fastqSplit", "fastqSplit_fastqSplit_"+of)
		var mapped []string
		for part := range width {
			last := split
			for _, kind := range []string{"filterContams", "sol2sanger", "fast2bfq", "map"} {
				last = b.addNamed(kind, fmt.Sprintf("%s_%s_%s_%d", kind, kind, of, part+1), last)
			}
			mapped = append(mapped, last)
		}
		merged = append(merged, b.addNamed("mapMerge", "mapMerge_mapMerge_"+of, mapped...))
	}
	all := b.addNamed("mapMergeAll", "mapMerge_mapMerge_"+sample, merged...)
	b.addNamed("pileup", "pileup_pileup", b.addNamed("chr21", "chr21_chr21", all))
}

// populations of the 1000 Genomes project that are compared.
const populations = 7

// genomes1000 is 1000Genome, mutations that populations share (WfCommons, Pegasus). For
// each chromosome: 10 or 25 independent tasks and their merge, and one more independent
// task; then two tasks for each of seven populations, which depend on the merge and on
// that task. There are 3 levels, and chromosomes are independent.
func genomes1000(b *builder, size int) {
	individuals := 10
	if size >= 300 {
		individuals = 25
	}
	for range largest(size, func(n int) int { return n * (individuals + 2 + 2*populations) }) {
		merge := b.add("individuals_merge", b.fan(individuals, "individuals")...)
		sifting := b.add("sifting")
		for range populations {
			b.add("mutation_overlap", merge, sifting)
			b.add("frequency", merge, sifting)
		}
	}
}

// soykb is SoyKB, variants of soybean genomes (WfCommons, Pegasus). Each sample goes
// through a chain of six tasks and then through one task for each of 10 or 20 chromosomes.
// All of these are merged, and those of a chromosome are analyzed together. The
// chromosomes are combined, and two chains of two tasks follow. There are 11 levels.
func soykb(b *builder, size int) {
	chromosomes := 10
	if size >= 300 {
		chromosomes = 20
	}
	ofChromosome := make([][]string, chromosomes)
	for range largest(size, func(n int) int { return (n + 1) * (chromosomes + 6) }) {
		last := b.add("alignment_to_reference")
		for _, kind := range []string{"sort_sam", "dedup", "add_replace"} {
			last = b.add(kind, last)
		}
		realigned := b.add("indel_realign", b.add("realign_target_creator", last), last)
		for i := range ofChromosome {
			ofChromosome[i] = append(ofChromosome[i], b.add("haplotype_caller", realigned))
		}
	}
	b.add("merge_gcvf", slices.Concat(ofChromosome...)...)
	var variants []string
	for _, calls := range ofChromosome {
		variants = append(variants, b.add("genotype_gvcfs", calls...))
	}
	combined := b.add("combine_variants", variants...)
	b.add("filtering_snp", b.add("select_variants_snp", combined))
	b.add("filtering_indel", b.add("select_variants_indel", combined))
}

// srasearch is SRASearch, sequences searched in an archive (WfCommons, Pegasus). Each
// accession is fetched and then aligned, which also needs the index that one task builds.
// Up to 25 alignments are merged at once, and if there are several merges, these are merged
// as well. There are 3 or 4 levels.
func srasearch(b *builder, size int) {
	const atOnce = 25
	merges := func(n int) int {
		groups := (n + atOnce - 1) / atOnce
		if groups > 1 {
			return groups + 1
		}
		return 1
	}
	accessions := largest(size, func(n int) int { return 1 + 2*n + merges(n) })
	index := b.add("bowtie2-build")
	var merged []string
	for group := range slices.Chunk(b.fan(accessions, "fasterq-dump"), atOnce) {
		merged = append(merged, b.add("merge", b.each("bowtie2", group, index)...))
	}
	if len(merged) > 1 {
		b.add("mergeAll", merged...)
	}
}
