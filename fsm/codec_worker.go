package fsm

func (o *RegisterWorker) encode(e *encoder) {
	e.u64(uint64(o.ID))
	e.str(o.Name)
	e.str(o.Incarnation)
	e.u64(uint64(o.Slots))
	e.u64(uint64(len(o.Labels)))
	for _, l := range o.Labels {
		e.str(l.Key)
		e.str(l.Value)
	}
	e.u64(uint64(len(o.Resources)))
	for _, r := range o.Resources {
		e.str(r.Name)
		e.i64(r.Amount)
	}
	e.str(o.Version)
	e.str(o.Address)
}

func (o *RegisterWorker) decode(d *decoder) {
	o.ID = WorkerID(d.u32())
	o.Name = d.str()
	o.Incarnation = d.str()
	o.Slots = d.u32()
	if n := d.count(2); n > 0 {
		o.Labels = make([]Label, n)
	}
	for i := range o.Labels {
		o.Labels[i] = Label{Key: d.str(), Value: d.str()}
	}
	if n := d.count(2); n > 0 {
		o.Resources = make([]Resource, n)
	}
	for i := range o.Resources {
		o.Resources[i] = Resource{Name: d.str(), Amount: d.i64()}
	}
	o.Version = d.str()
	o.Address = d.str()
}

func (o *MarkWorkerDown) encode(e *encoder) { e.u64(uint64(o.ID)); e.str(o.Reason) }
func (o *MarkWorkerDown) decode(d *decoder) { o.ID, o.Reason = WorkerID(d.u32()), d.str() }

func (o *DrainWorker) encode(e *encoder) { e.u64(uint64(o.ID)); e.i64(o.Until); e.str(o.Reason) }
func (o *DrainWorker) decode(d *decoder) {
	o.ID, o.Until, o.Reason = WorkerID(d.u32()), d.i64(), d.str()
}

func (o *UndrainWorker) encode(e *encoder) { e.u64(uint64(o.ID)) }
func (o *UndrainWorker) decode(d *decoder) { o.ID = WorkerID(d.u32()) }

func (o *ForgetWorkers) encode(e *encoder) {
	e.u64(uint64(len(o.IDs)))
	for _, id := range o.IDs {
		e.u64(uint64(id))
	}
}

func (o *ForgetWorkers) decode(d *decoder) {
	o.IDs = make([]WorkerID, d.count(1))
	for i := range o.IDs {
		o.IDs[i] = WorkerID(d.u32())
	}
}
