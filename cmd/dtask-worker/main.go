// Command dtask-worker executes tasks for a cluster of coordinators. Package
// cmd/internal/dtaskworker implements it.
package main

import "github.com/dtask/dtask/cmd/internal/dtaskworker"

func main() { dtaskworker.Main() }
