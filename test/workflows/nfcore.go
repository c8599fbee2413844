package workflows

import "slices"

// pipelines are the names of pipelines: their IDs begin with them.
var pipelines = []string{"RNASEQ", "ATACSEQ", "CHIPSEQ", "CUTANDRUN", "VIRALRECON", "METHYLSEQ"}

// processes of a pipeline, as paths below its name. A path has the names of all nested
// workflows, so that IDs have up to 124 characters.
const (
	samplesheet = "INPUT_CHECK.SAMPLESHEET_CHECK"
	annotation  = "PREPARE_GENOME.GUNZIP_GTF"
	alignIndex  = "PREPARE_GENOME.BOWTIE2_BUILD"
	rawQuality  = "FASTQ_FASTQC_UMITOOLS_TRIMGALORE.FASTQC"
	trim        = "FASTQ_FASTQC_UMITOOLS_TRIMGALORE.TRIMGALORE"
	align       = "FASTQ_ALIGN_BOWTIE2.BOWTIE2_ALIGN"
	sortBam     = "FASTQ_ALIGN_BOWTIE2.BAM_SORT_STATS_SAMTOOLS.SAMTOOLS_SORT"
	indexBam    = "FASTQ_ALIGN_BOWTIE2.BAM_SORT_STATS_SAMTOOLS.SAMTOOLS_INDEX"
	bamStats    = "FASTQ_ALIGN_BOWTIE2.BAM_SORT_STATS_SAMTOOLS.BAM_STATS_SAMTOOLS.SAMTOOLS_FLAGSTAT"
	replicates  = "MERGED_REPLICATE.PICARD_MERGESAMFILES"
	mergedStats = "REPLICATE_MARKDUPLICATES_BAM.BAM_MARKDUPLICATES_PICARD.BAM_STATS_SAMTOOLS.SAMTOOLS_IDXSTATS"
	consensus   = "MERGED_REPLICATE_CONSENSUS_PEAKS.MACS2_CONSENSUS"
	versions    = "CUSTOM_DUMPSOFTWAREVERSIONS"
	multiqc     = "MULTIQC"
)

// nfcore is a pipeline of nf-core (WfCommons, Nextflow). Two tasks prepare the genome, and
// one checks the list of samples. Each sample has a chain of four tasks, with reports at
// several of its levels. Two samples at a time are merged, with a report, and one task
// finds the consensus of the merges. One more task depends on nothing, and one depends on
// all reports. There are 7 levels.
func nfcore(b *builder, size int) {
	const atOnce = 2
	pipeline := pipelines[b.random.IntN(len(pipelines))]
	add := func(process string, after ...string) string {
		return b.addNamed(process, "NFCORE_"+pipeline+"."+pipeline+"."+process, after...)
	}
	samples := largest(size, func(n int) int { return 6 + 6*n + 2*((n+atOnce-1)/atOnce) })
	sheet, gtf, index := add(samplesheet), add(annotation), add(alignIndex)
	var reports, sorted, merged []string
	for range samples {
		reports = append(reports, add(rawQuality, sheet))
		bam := add(sortBam, add(align, add(trim, sheet), index))
		reports = append(reports, add(bamStats, bam, add(indexBam, bam)))
		sorted = append(sorted, bam)
	}
	for group := range slices.Chunk(sorted, atOnce) {
		merge := add(replicates, group...)
		reports = append(reports, add(mergedStats, merge))
		merged = append(merged, merge)
	}
	reports = append(reports, add(consensus, append(merged, gtf)...), add(versions))
	add(multiqc, reports...)
}
