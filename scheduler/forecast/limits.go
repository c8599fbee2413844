package forecast

// A Limit is a named limit that tasks use.
type Limit struct {
	Running  uint32 // tasks at once; 0 = unlimited
	Rate     uint32 // starts in each period; 0 = unlimited
	PeriodMS uint32 // at least 1 with a rate
	Burst    uint32 // starts at once, at least 1 with a rate
}

// A bucket has the tokens of a limit with a rate, in virtual time. It begins full.
type bucket struct {
	Limit
	units int64 // each ms adds Rate, and a token takes PeriodMS
	atMS  int64 // up to which units were added
}

func (k *bucket) refill(now int64) {
	full, added := int64(k.Burst)*int64(k.PeriodMS), (now-k.atMS)*int64(k.Rate)
	k.units, k.atMS = min(k.units+added, full), now
}

func (k *bucket) whole() int64 { return k.units / int64(k.PeriodMS) }

// next returns when an empty bucket has a token.
func (k *bucket) next() int64 {
	missing := int64(k.PeriodMS) - k.units
	return k.atMS + (missing+int64(k.Rate)-1)/int64(k.Rate)
}

// useLimit sets a limit of a new class.
func (f *forecast) useLimit(name string, l Limit) {
	f.s.SetNamedLimit(name, l.Running)
	if l.Rate == 0 {
		return
	}
	k := f.buckets[name]
	if k == nil {
		if f.buckets == nil {
			f.buckets = make(map[string]*bucket)
		}
		k = &bucket{Limit: l, units: int64(l.Burst) * int64(l.PeriodMS), atMS: f.now}
		f.buckets[name] = k
	}
	f.grant(name, k)
}

// grant sets the tokens of a limit in the scheduler.
func (f *forecast) grant(name string, k *bucket) {
	f.s.SetTokens(name, uint32(k.whole())) //nolint:gosec // at most the burst
	delete(f.empty, name)
	if k.whole() > 0 {
		return
	}
	if f.empty == nil {
		f.empty = make(map[string]*bucket)
	}
	f.empty[name] = k
}

// settle takes the tokens of what started. It reports whether more may start.
func (f *forecast) settle() (more bool) {
	f.s.Spent(func(name string, taken, left uint32) {
		k := f.buckets[name]
		k.refill(f.now)
		k.units -= int64(taken) * int64(k.PeriodMS)
		more = more || left == 0 && k.whole() > 0
		f.grant(name, k)
	})
	return more
}

// nextToken returns when the first empty bucket has a token.
func (f *forecast) nextToken() (at int64, ok bool) {
	for _, k := range f.empty { // unordered: the earliest
		if next := k.next(); !ok || next < at {
			at, ok = next, true
		}
	}
	return at, ok
}

// addTokens adds the tokens of the time until now to the empty buckets.
func (f *forecast) addTokens() {
	for name, k := range f.empty { // unordered: each is independent of the others
		k.refill(f.now)
		f.grant(name, k)
	}
}
