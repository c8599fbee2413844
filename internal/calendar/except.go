package calendar

// exceptions are times without a tick.
type exceptions struct {
	days     map[int64]struct{}
	civils   map[civil]struct{}
	instants map[int64]struct{}
}

func (x *exceptions) add(points []Point) {
	for _, p := range points {
		switch p.is {
		case date:
			put(&x.days, p.at.day())
		case wallClock:
			put(&x.civils, p.at)
		case instant:
			put(&x.instants, int64(p.at))
		}
	}
}

func put[K comparable](set *map[K]struct{}, key K) {
	if *set == nil {
		*set = map[K]struct{}{}
	}
	(*set)[key] = struct{}{}
}

// covers reports whether a wall-clock time has no tick. For a tick that is moved, that is
// the time at which it would fire without the gap.
func (x *exceptions) covers(c civil) bool {
	if x.coversDay(c) {
		return true
	}
	_, excluded := x.civils[c]
	return excluded
}

// coversDay reports whether the day of a wall-clock time has no tick.
func (x *exceptions) coversDay(c civil) bool {
	if len(x.days) == 0 {
		return false
	}
	_, excluded := x.days[c.day()]
	return excluded
}

// coversInstant reports whether an instant has no tick.
func (x *exceptions) coversInstant(at int64) bool {
	_, excluded := x.instants[at]
	return excluded
}
