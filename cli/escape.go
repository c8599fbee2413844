package cli

import (
	"fmt"
	"io"

	"github.com/dtask/dtask/cli/show"
)

// An escapeFilter removes terminal escape sequences. Of a sequence that two writes
// split it removes only the start, which makes the rest harmless too.
type escapeFilter struct{ w io.Writer }

func (f escapeFilter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(f.w, show.CleanText(string(p))); err != nil {
		return 0, fmt.Errorf("writing: %w", err)
	}
	return len(p), nil
}
