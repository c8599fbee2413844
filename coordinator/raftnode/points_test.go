//go:build !race

package raftnode

// crashPoints is at how many points of one recorded history the power is cut.
const crashPoints = 300
