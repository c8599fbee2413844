// Command dtaskctl submits jobs to a dtask cluster and manages the cluster. Package cli
// implements it.
package main

import "github.com/dtask/dtask/cmd/internal/dtaskctl"

func main() { dtaskctl.Main() }
