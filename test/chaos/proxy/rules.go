package proxy

import "time"

// Flow says what happens to the bytes of one direction. The zero value passes
// them on.
type Flow struct {
	// Stall reads nothing more, so that the sender's buffers fill. What was
	// read before is kept, and passed on once the stall is over.
	Stall bool
	// Discard reads and throws away. A connection that lost bytes is reset when
	// this is over: its peers could not make sense of what follows.
	Discard bool
	// Delay is how much later each byte arrives; up to Jitter more is added by
	// chance. Bytes stay in order.
	Delay, Jitter time.Duration
	// Rate is how many bytes pass in a second; 0 = no limit.
	Rate int
	// Slice is how many bytes are written at a time, each in its own packet as
	// far as the kernel lets us; 0 = as they come.
	Slice int
	// CutAfter resets a connection once so many bytes have passed since the
	// rules were set; 0 = never.
	CutAfter int64
}

// Rules say what a link does. The zero value passes everything on.
type Rules struct {
	// Refuse stops listening: new connections are refused.
	Refuse bool
	// Reset resets every new connection at once.
	Reset bool
	// Mute accepts new connections and never connects them to the target.
	Mute bool
	// Forward is from the dialing side to the target, Back the other way.
	Forward, Back Flow
}

// Cut are the rules of a link that is dead without a word: nothing passes either
// way, and new connections go nowhere.
func Cut() Rules {
	return Rules{Mute: true, Forward: Flow{Stall: true}, Back: Flow{Stall: true}}
}

// Gone are the rules of a link whose target seems to be gone. Those who are
// connected must be reset with Link.ResetAll.
func Gone() Rules { return Rules{Refuse: true} }

// Swallow are the rules of a link that takes everything and passes nothing on.
func Swallow() Rules {
	return Rules{Mute: true, Forward: Flow{Discard: true}, Back: Flow{Discard: true}}
}

// Deaf are the rules of a link on which only the target's bytes arrive.
func Deaf() Rules { return Rules{Forward: Flow{Stall: true}} }

// Dumb are the rules of a link on which the target's bytes do not arrive.
func Dumb() Rules { return Rules{Back: Flow{Stall: true}} }

// Slow are the rules of a link with this much latency in each direction.
func Slow(delay, jitter time.Duration) Rules {
	f := Flow{Delay: delay, Jitter: jitter}
	return Rules{Forward: f, Back: f}
}
