//go:build race

package raftnode

// crashPoints is at how many points of one recorded life the power is cut. The race
// detector counts each byte of a folder that is copied, and sees at the first points
// what it sees at all of them.
const crashPoints = 50
