package fsm

import "bytes"

func (o *SetClusterID) encode(e *encoder) { e.str(o.ID) }
func (o *SetClusterID) decode(d *decoder) { o.ID = d.str() }

func (o *Replica) encode(e *encoder) {
	e.str(o.ServerID)
	e.str(o.Instance)
	e.str(o.Replaces)
	e.u64(o.LowWaterMark)
}

func (o *Replica) decode(d *decoder) {
	o.ServerID, o.Instance, o.Replaces = d.str(), d.str(), d.str()
	o.LowWaterMark = d.u64()
}

func (o *StartTerm) encode(e *encoder) { e.u64(o.Term); e.str(o.ServerID) }
func (o *StartTerm) decode(d *decoder) { o.Term, o.ServerID = d.u64(), d.str() }

func (o *BeginUpload) encode(e *encoder) {
	e.u64(uint64(o.ID))
	e.str(o.Key)
	e.i64(o.KeyExpires)
	e.bytes(o.Header)
	e.u64(uint64(o.Total))
}

func (o *BeginUpload) decode(d *decoder) {
	o.ID = JobID(d.u64())
	o.Key = d.str()
	o.KeyExpires = d.i64()
	o.Header = bytes.Clone(d.bytes()) // outlives the entry by far
	o.Total = d.u32()
}

func (o *JobChunk) encode(e *encoder) {
	e.u64(uint64(o.Job))
	o.Chunk.encode(e)
}

func (o *JobChunk) decode(d *decoder) {
	o.Job = JobID(d.u64())
	o.Chunk = decodeChunk(d)
	o.Chunk.blob = bytes.Clone(o.Chunk.blob) // outlives the entry by far
}

func (o *JobArray) encode(e *encoder) {
	e.u64(uint64(o.Job))
	o.Chunk.encode(e)
}

func (o *JobArray) decode(d *decoder) {
	o.Job = JobID(d.u64())
	o.Chunk = decodeArrayChunk(d, true)
}

func (o *SealUpload) encode(e *encoder) {
	e.u64(uint64(o.Job))
	e.u64(uint64(o.Sum))
	e.b = append(e.b, o.Digest[:]...)
}

func (o *SealUpload) decode(d *decoder) {
	o.Job = JobID(d.u64())
	o.Sum = d.u32()
	d.array(&o.Digest)
}

// array reads 16 bytes.
func (d *decoder) array(to *[16]byte) {
	if len(d.b) < len(to) {
		d.fail(errTruncated)
		return
	}
	copy(to[:], d.b)
	d.b = d.b[len(to):]
}

func (o *DropUpload) encode(e *encoder) { e.u64(uint64(o.Job)) }
func (o *DropUpload) decode(d *decoder) { o.Job = JobID(d.u64()) }

func (o *CancelJob) encode(e *encoder) {
	e.u64(uint64(o.Job))
	e.str(o.Reason)
	e.bool(o.IncludeCleanup)
}
func (o *CancelJob) decode(d *decoder) {
	o.Job, o.Reason, o.IncludeCleanup = JobID(d.u64()), d.str(), d.bool()
}

func (t TaskRef) encode(e *encoder)  { e.u64(uint64(t.Job)); e.u64(uint64(t.Index)) }
func (t *TaskRef) decode(d *decoder) { t.Job, t.Index = JobID(d.u64()), d.u32() }

func (o *CancelTask) encode(e *encoder) { o.Task.encode(e); e.str(o.Reason); e.bool(o.WholeArray) }
func (o *CancelTask) decode(d *decoder) { o.Task.decode(d); o.Reason, o.WholeArray = d.str(), d.bool() }

func (o *FailJob) encode(e *encoder) { e.u64(uint64(o.Job)); e.str(o.Error) }
func (o *FailJob) decode(d *decoder) { o.Job, o.Error = JobID(d.u64()), d.str() }

func (o *FailTask) encode(e *encoder) { o.Task.encode(e); e.str(o.Error) }
func (o *FailTask) decode(d *decoder) { o.Task.decode(d); o.Error = d.str() }

func (o *ForgetJobs) encode(e *encoder) {
	e.u64(uint64(len(o.IDs)))
	for _, id := range o.IDs {
		e.u64(uint64(id))
	}
}

func (o *ForgetJobs) decode(d *decoder) {
	o.IDs = make([]JobID, d.count(1))
	for i := range o.IDs {
		o.IDs[i] = JobID(d.u64())
	}
}

func (o *ForgetKeys) encode(e *encoder) {
	e.u64(uint64(len(o.Keys)))
	for _, k := range o.Keys {
		e.str(k)
	}
}

func (o *ForgetKeys) decode(d *decoder) {
	o.Keys = make([]string, d.count(1))
	for i := range o.Keys {
		o.Keys[i] = d.str()
	}
}
