// Command dtaskd is a coordinator. Package cmd/internal/dtaskd implements it.
package main

import "github.com/dtask/dtask/cmd/internal/dtaskd"

func main() { dtaskd.Main() }
