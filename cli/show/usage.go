package show

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// DiskUsage adds a table of the files of each coordinator, and one of the state. Kinds of
// data that the state has none of are left out.
func (p *Printer) DiskUsage(answers []*dtaskv1.DiskUsageResponse) {
	files := p.sizes("FILES", answers, (*dtaskv1.DiskUsageResponse).GetFiles, true)
	free := []string{"disk free"}
	for _, u := range answers {
		text := ""
		if u.GetDiskBytes() > 0 {
			text = Size(u.GetDiskFreeBytes()) + " of " + Size(u.GetDiskBytes())
		}
		free = append(free, text)
	}
	files.Row(free...)
	p.Table(files)
	p.Line("")
	state := p.sizes("STATE", answers, (*dtaskv1.DiskUsageResponse).GetState, false)
	heap := []string{"heap in use"}
	for _, u := range answers {
		heap = append(heap, Size(u.GetHeapBytes()))
	}
	state.Row(heap...)
	p.Table(state)
}

// sizes makes a table of sizes with a column for each coordinator, and their total. It has
// the kinds in the order of the first one that has them. With all, it has also those that
// are empty everywhere.
func (p *Printer) sizes(heading string, answers []*dtaskv1.DiskUsageResponse, of func(*dtaskv1.DiskUsageResponse) []*dtaskv1.Size, all bool) *Table {
	headings, total := []string{heading}, []string{"total"}
	var kinds []string
	rows := make(map[string][]uint64) // by kind, with a column for each answer
	for column, u := range answers {
		headings = append(headings, Clean(u.GetServerId()))
		sum := uint64(0)
		for _, s := range of(u) {
			sum += s.GetBytes()
			if rows[s.GetKind()] == nil {
				kinds = append(kinds, s.GetKind())
				rows[s.GetKind()] = make([]uint64, len(answers))
			}
			rows[s.GetKind()][column] = s.GetBytes()
		}
		total = append(total, Size(sum))
	}
	t := NewTable(headings...)
	for _, kind := range kinds {
		row, used := []string{kind}, all
		for _, n := range rows[kind] {
			row = append(row, Size(n))
			used = used || n > 0
		}
		if used {
			t.Row(row...)
		}
	}
	t.Row(total...)
	return t
}
