package show

import (
	"strings"

	"github.com/dtask/dtask/internal/document"
)

// Ticks adds the ticks of a schedule. A tick with several notes has a line for each.
func (p *Printer) Ticks(ticks []document.Tick) {
	t := NewTable("LOCAL", "UTC", "NOTE")
	for _, tick := range ticks {
		notes := strings.Split(tick.Note, "; ")
		t.Row(tick.Local, tick.At, notes[0])
		for _, note := range notes[1:] {
			t.Continue("", "", note)
		}
	}
	p.Table(t)
}
