//go:build !linux

package main

import (
	"fmt"
	"os"
)

// dataSync is fsync on systems without fdatasync.
func dataSync(file *os.File) error {
	if err := file.Sync(); err != nil {
		return fmt.Errorf("syncing: %w", err)
	}
	return nil
}
