package proxy

import "time"

// Flow describes what happens to the bytes of one direction. The zero value passes
// them on.
type Flow struct {
	// Stall reads nothing more, so that the sender's buffers fill. Bytes already read
	// are kept, and passed on after the stall.
	Stall bool
	// Discard reads and drops bytes. A connection that lost bytes is reset afterwards,
	// because its peers could not interpret what follows.
	Discard bool
	// Delay is the added latency of each byte, plus a random part up to Jitter. Bytes
	// stay in order. The handshake takes as long as both directions; a refusal takes no
	// time.
	Delay, Jitter time.Duration
	// Rate is the maximum number of bytes per second (0 = unlimited).
	Rate int
	// Slice is how many bytes are written at once, each in its own packet if the
	// kernel permits (0 = as received).
	Slice int
	// CutAfter resets a connection after that many bytes since the rules were set (0
	// = never).
	CutAfter int64
}

// Rules describe the behavior of a link. The zero value passes everything on.
type Rules struct {
	// Refuse stops listening: new connections are refused.
	Refuse bool
	// Reset resets every new connection immediately.
	Reset bool
	// Mute accepts new connections and never connects them to the target.
	Mute bool
	// Forward is the direction from the dialing side to the target, Back the other one.
	Forward, Back Flow
}

// Cut are the rules of a silently dead link: nothing passes in either direction, and
// new connections hang.
func Cut() Rules {
	return Rules{Mute: true, Forward: Flow{Stall: true}, Back: Flow{Stall: true}}
}

// Gone are the rules of a link whose target has stopped. Existing connections must
// be reset with Link.ResetAll.
func Gone() Rules { return Rules{Refuse: true} }

// Swallow are the rules of a link that accepts everything and passes nothing on.
func Swallow() Rules {
	return Rules{Mute: true, Forward: Flow{Discard: true}, Back: Flow{Discard: true}}
}

// Deaf are the rules of a link on which only the target's bytes arrive.
func Deaf() Rules { return Rules{Forward: Flow{Stall: true}} }

// Dumb are the rules of a link on which the target's bytes do not arrive.
func Dumb() Rules { return Rules{Back: Flow{Stall: true}} }

// Slow are the rules of a link with this latency in each direction.
func Slow(delay, jitter time.Duration) Rules {
	f := Flow{Delay: delay, Jitter: jitter}
	return Rules{Forward: f, Back: f}
}
