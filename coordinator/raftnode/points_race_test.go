//go:build race

package raftnode

// crashPoints is at how many points of one recorded history the power is cut. The race
// detector slows the copying of directories, and the first points show the same as all
// of them.
const crashPoints = 50
