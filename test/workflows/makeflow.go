package workflows

// blast is BLAST (WfCommons, Makeflow): a file of sequences is split, each part is searched
// for, and two tasks concatenate what all parts wrote. There are 3 levels.
func blast(b *builder, size int) {
	found := b.fan(size-3, "blastall", b.add("split_fasta"))
	b.add("cat_blast", found...)
	b.add("cat", found...)
}

// bwa is BWA (WfCommons, Makeflow): blast, with an index as a second dependency of every
// part.
func bwa(b *builder, size int) {
	reads, index := b.add("fastq_reduce"), b.add("bwa_index")
	aligned := b.fan(size-4, "bwa", reads, index)
	b.add("cat_bwa", aligned...)
	b.add("cat", aligned...)
}

// rosetta is Rosetta, variants of a protein that are computed one by one (Pegasus
// examples): a bag of independent tasks.
func rosetta(b *builder, size int) { b.fan(size, "rosetta.linuxgccrelease") }

// helloworld is the example of WfCommons: a chain, or, with 10 tasks or more, one task, a
// fan and a fan-in.
func helloworld(b *builder, size int) {
	if size >= 10 {
		b.add("join", b.fan(size-2, "work", b.add("fork"))...)
		return
	}
	last := b.add("chain")
	for range size - 1 {
		last = b.add("chain", last)
	}
}
