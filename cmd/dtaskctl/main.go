// Command dtaskctl submits jobs to a dtask cluster, watches them, and looks
// after the cluster. Package cli is all of it.
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/dtask/dtask/cli"
	"github.com/dtask/dtask/internal/program"
)

// deferred is how much garbage is gathered before it is collected, in bytes: whoever submits
// many small jobs makes much of it and holds little.
const deferred = 32 << 20

func main() {
	program.TuneBuffers() // a submission is mostly some hundred KiB
	program.DeferCollection(deferred)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
