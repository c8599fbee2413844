package fsm

func (o *Assign) encode(e *encoder) {
	e.u64(uint64(len(o.Items)))
	var c itemCoder
	for _, it := range o.Items {
		c.held(e, HeldAttempt(it))
	}
}

func (o *Assign) decode(d *decoder) {
	o.Items = make([]AssignItem, d.count(3))
	var c itemCoder
	for i := range o.Items {
		o.Items[i] = AssignItem(c.readHeld(d))
	}
}

func encodeHeld(e *encoder, items []HeldAttempt) {
	e.u64(uint64(len(items)))
	var c itemCoder
	for _, it := range items {
		c.held(e, it)
	}
}

func decodeHeld(d *decoder) []HeldAttempt {
	items := make([]HeldAttempt, d.count(3))
	var c itemCoder
	for i := range items {
		items[i] = c.readHeld(d)
	}
	return items
}

func (o *RecordStart) encode(e *encoder) { encodeHeld(e, o.Items) }
func (o *RecordStart) decode(d *decoder) { o.Items = decodeHeld(d) }
func (o *Requeue) encode(e *encoder)     { e.bool(o.Lost); encodeHeld(e, o.Items) }
func (o *Requeue) decode(d *decoder)     { o.Lost = d.bool(); o.Items = decodeHeld(d) }
func (o *Lose) encode(e *encoder)        { encodeHeld(e, o.Items) }
func (o *Lose) decode(d *decoder)        { o.Items = decodeHeld(d) }

// A completion's fifth field says which of the rarer ones follow.
const (
	hasResult = 1 << iota
	hasOutput
	completeFlags
)

func (o *Complete) encode(e *encoder) {
	e.u64(uint64(len(o.Items)))
	var c itemCoder
	for _, it := range o.Items {
		c.held(e, it.HeldAttempt)
		e.u64(uint64(it.DurationMS))
		var flags byte
		if len(it.Result) > 0 {
			flags |= hasResult
		}
		if len(it.OutputSHA256) > 0 {
			flags |= hasOutput
		}
		e.byte(flags)
		if flags&hasResult != 0 {
			e.bytes(it.Result)
		}
		if flags&hasOutput != 0 {
			e.i64(it.OutputSize)
			e.bytes(it.OutputSHA256)
		}
	}
}

func (o *Complete) decode(d *decoder) {
	o.Items = make([]CompleteItem, d.count(5))
	var c itemCoder
	for i := range o.Items {
		it := &o.Items[i]
		it.HeldAttempt = c.readHeld(d)
		it.DurationMS = d.u32()
		flags := d.byte()
		if flags >= completeFlags {
			d.fail(&UnknownError{What: "a completion field"})
		}
		if flags&hasResult != 0 {
			it.Result = d.bytes()
		}
		if flags&hasOutput != 0 {
			it.OutputSize = d.i64()
			it.OutputSHA256 = d.bytes()
		}
	}
}

func (o *Fail) encode(e *encoder) {
	e.u64(uint64(len(o.Items)))
	var c itemCoder
	for _, it := range o.Items {
		c.held(e, it.HeldAttempt)
		e.u64(uint64(it.DurationMS))
		e.byte(byte(it.Next))
		e.i64(it.Due)
		e.bool(it.CountsAsRetry)
		e.str(it.Error)
	}
}

func (o *Fail) decode(d *decoder) {
	o.Items = make([]FailItem, d.count(8))
	var c itemCoder
	for i := range o.Items {
		it := &o.Items[i]
		it.HeldAttempt = c.readHeld(d)
		it.DurationMS = d.u32()
		it.Next = Next(d.byte())
		it.Due = d.i64()
		it.CountsAsRetry = d.bool()
		it.Error = d.str()
	}
}

func (o *Due) encode(e *encoder) {
	e.u64(uint64(len(o.Items)))
	var c itemCoder
	for _, it := range o.Items {
		c.attempt(e, it)
	}
}

func (o *Due) decode(d *decoder) {
	o.Items = make([]DueItem, d.count(2))
	var c itemCoder
	for i := range o.Items {
		o.Items[i] = c.readAttempt(d)
	}
}
