package workflows

import "fmt"

// seismology is Seismic Cross Correlation (WfCommons, Pegasus): one task for each pair of
// signals, and one that depends on all of them. It is a wide fan-in of 2 levels.
func seismology(b *builder, size int) {
	b.add("wrapper_siftSTFByMisfit", b.fan(size-1, "sG1IterDecon")...)
}

// cycles is Cycles, crops under several weathers and fertilizers (WfCommons, Pegasus). Each
// combination has four tasks: a baseline, two simulations after it, and a comparison of the
// two. The simulations of one location have a summary, and the comparisons have one, too.
// One task plots the first summaries. There are 4 levels.
func cycles(b *builder, size int) {
	locations := min(1+size/200, 4)
	combinations := max((size-1-2*locations)/4, locations)
	var summaries []string
	for _, n := range b.divide(combinations, locations) {
		var simulated, compared []string
		for range n {
			baseline := b.add("baseline_cycles")
			plain := b.add("cycles", baseline)
			increased := b.add("fertilizer_increase_cycles", baseline)
			simulated = append(simulated, plain)
			compared = append(compared, b.add("cycles_fertilizer_increase_output_parser", plain, increased))
		}
		summaries = append(summaries, b.add("cycles_output_summary", simulated...))
		b.add("cycles_fertilizer_increase_output_summary", compared...)
	}
	b.add("cycles_plots", summaries...)
}

// cybershake is CyberShake, earthquake hazards of a site (Pegasus workflow gallery). Each
// of some tensors is extracted, and many seismograms are synthesized from it. Each
// seismogram has its peak values calculated. One task packs all seismograms, another one
// all peak values. There are 4 levels, with fans in both directions.
func cybershake(b *builder, size int) {
	tensors := max(size/50, 2)
	seismograms := max((size-2-tensors)/2, tensors)
	var synthesized []string
	for tensor, n := range b.divide(seismograms, tensors) {
		extracted := b.addNamed("ExtractSGT", fmt.Sprintf("ExtractSGT_TEST.%d", tensor+1))
		synthesized = append(synthesized, b.fan(n, "SeismogramSynthesis", extracted)...)
	}
	b.add("ZipSeis", synthesized...)
	b.add("ZipPSA", b.each("PeakValCalcOkaya", synthesized)...)
}
