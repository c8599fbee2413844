package workflows

// bands is the number of colors of a mosaic.
const bands = 3

// montage is Montage, a mosaic of images of the sky (WfCommons, Pegasus). In each of three
// bands, each image is projected, and each pair of overlapping projections compared, about
// four pairs to an image. One task collects the differences, and the next one computes a
// correction from them, which is applied to each projection. One task makes an index of the
// corrected images, one the mosaic of the band from index and images, and one renders it.
// A last task combines the bands. There are 8 levels, and two thirds of the tasks are
// comparisons.
func montage(b *builder, size int) {
	images := largest(size, func(n int) int { return bands*(2*n+len(overlaps(n))+5) + 1 })
	var mosaics []string
	for range bands {
		projections := b.fan(images, "mProject")
		var differences []string
		for _, pair := range overlaps(images) {
			differences = append(differences, b.add("mDiffFit", projections[pair[0]], projections[pair[1]]))
		}
		model := b.add("mBgModel", b.add("mConcatFit", differences...))
		corrected := b.each("mBackground", projections, model)
		mosaic := b.add("mAdd", append(corrected, b.add("mImgtbl", corrected...))...)
		b.add("mViewer", mosaic)
		mosaics = append(mosaics, mosaic)
	}
	b.add("mViewer", mosaics...)
}

// overlaps returns the pairs of overlapping images of n that fill a square row by row: an
// image overlaps those to the left, above, above left and above right.
func overlaps(n int) [][2]int {
	width := 1
	for width*width < n {
		width++
	}
	var pairs [][2]int
	for i := 1; i < n; i++ {
		column := i % width
		if column > 0 {
			pairs = append(pairs, [2]int{i - 1, i})
		}
		for above := max(column-1, 0); above <= min(column+1, width-1); above++ {
			if j := i - width + above - column; j >= 0 {
				pairs = append(pairs, [2]int{j, i})
			}
		}
	}
	return pairs
}
