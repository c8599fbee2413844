package workflows

// bands is the number of colors of a mosaic.
const bands = 3

// montage is Montage, a mosaic of images of the sky (WfCommons, Pegasus). For each of
// three bands: a projection of each image; the difference of each two images that overlap,
// four to an image; all differences into one task, and that into another one; then each
// projection with that one's correction, all corrected images into an index, and these
// with the index into the mosaic of the band, which a viewer shows. One more viewer
// combines the bands. There are 8 levels, and two thirds of the tasks are differences.
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

// overlaps returns the pairs of images that overlap, of n that cover a square row by row:
// each with those to the left, above, and above to both sides.
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
