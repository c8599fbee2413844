// Package dtaskctl is the program dtaskctl, which package cli implements: it sets up the
// process, and calls cli.Main.
package dtaskctl

import (
	"context"
	"os"
	"os/signal"

	"github.com/dtask/dtask/cli"
	"github.com/dtask/dtask/internal/program"
)

// minHeap is the heap size below which no garbage is collected, in bytes.
// Submitting many small jobs makes much garbage and little live data.
const minHeap = 32 << 20

// Main is main of the program: it ends the process.
func Main() {
	program.TuneBuffers() // a submission is typically a few hundred KiB
	program.DeferCollection(minHeap)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
