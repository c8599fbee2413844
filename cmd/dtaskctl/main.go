// Command dtaskctl submits jobs to a dtask cluster, watches them, and looks
// after the cluster. Package cli is all of it.
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/dtask/dtask/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
