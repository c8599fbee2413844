package api

import (
	"context"
	"io"
	"time"
)

// maxYield bounds one wait of a yieldingWriter: a caller that reads slowly gives the processor
// away by itself.
const maxYield = 20 * time.Millisecond

// yieldingWriter waits after each messageBytes bytes for as long as those took. What writes to it
// thus takes at most half of a processor, and less of one that it shares: tasks start meanwhile,
// and a backup is in no hurry.
type yieldingWriter struct {
	io.Writer

	ctx   context.Context //nolint:containedctx // of the call: io.Writer has none
	began time.Time       // when the writer continued
	bytes int             // written since then
}

// yielding returns a yieldingWriter that begins now. Its waits end with ctx, without an error.
func yielding(ctx context.Context, to io.Writer) *yieldingWriter {
	return &yieldingWriter{Writer: to, ctx: ctx, began: time.Now()}
}

// Write implements io.Writer.
func (y *yieldingWriter) Write(b []byte) (int, error) {
	n, err := y.Writer.Write(b)
	if y.bytes += n; y.bytes >= messageBytes && err == nil {
		wait := time.NewTimer(min(time.Since(y.began), maxYield))
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-y.ctx.Done():
		}
		y.began, y.bytes = time.Now(), 0
	}
	return n, err //nolint:wrapcheck // of the writer itself
}
