package main

import (
	"fmt"
	"os"
	"syscall"
)

// dataSync is fdatasync.
func dataSync(file *os.File) error {
	if err := syscall.Fdatasync(int(file.Fd())); err != nil {
		return fmt.Errorf("syncing: %w", err)
	}
	return nil
}
