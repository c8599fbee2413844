// Package mmap releases the memory of mapped files. bbolt maps its file and reads
// through the mapping. Each page that was ever read counts as resident memory of the
// process from then on, although the operating system shares it and reclaims it when
// needed. A process that writes for days would seem to grow without bound, like a leak.
package mmap
