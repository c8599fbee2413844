// Package mapped gives back the memory of files that are mapped. bbolt maps its file and
// reads through the mapping; each page that was ever looked at counts as resident memory
// of the process from then on, although the system keeps it for all and takes it when it needs
// it. A process that writes for days would seem to grow without end, and whoever
// watches it, or ends processes that grow, could not tell this from a leak.
package mmap
