package history

import (
	"context"
	"log/slog"
	"time"

	"github.com/dtask/dtask/fsm"
)

// Source is another replica that jobs can be had from.
type Source interface {
	// Fetch calls take with the pieces of all jobs at places after a given one,
	// with log indexes up to to, in order; the parts of a job come before its head.
	// complete says that the source lacks none of them; it is told with the first
	// call, and returned. It returns the first error of take as it is.
	Fetch(ctx context.Context, after Place, to uint64, take func(p Piece, complete bool) error) (complete bool, err error)
}

// Piece is a part of a record on its way to another replica.
type Piece struct {
	Place
	Part  uint32 // number of a part; 0 = the head, or a whole record
	Parts uint32 // with the head: how many parts there are
	Data  []byte
}

// Config is what a History needs. Zero limits mean the defaults.
type Config struct {
	Path   string // of the file; its folder must exist
	Logger *slog.Logger

	// MaxJobs and MaxBytes bound what is kept; defaults 50 million and 20 GiB. The
	// oldest go first.
	MaxJobs, MaxBytes uint64
	// Delay is how long a job may wait to be written together with others, and
	// Batch how many bytes of records are written at a time; defaults 1 s, 8 MiB.
	Delay time.Duration
	Batch int
	// Waiting is how many bytes of jobs may wait before Busy says so, and Most
	// how many before Room waits; defaults 64 MiB and 256 MiB.
	Waiting, Most int
	// Sources gives the other replicas, the best first, and whether they are all that the
	// cluster has. nil: that is never known.
	Sources func(ctx context.Context) (sources []Source, all bool)
	// FetchEvery is how long to wait after no source could fill a gap, and FetchRate
	// how many bytes a second are fetched; defaults 2 s and 32 MiB.
	FetchEvery time.Duration
	FetchRate  int
	// ScrubFirst is how long after the start the file is checked first, ScrubEvery how often
	// then, from start to start, and ScrubRate how many bytes of records a second are
	// looked at; defaults 1 min, 24 h, 1 MiB.
	ScrubFirst, ScrubEvery time.Duration
	ScrubRate              int
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c *Config) defaults() {
	orDefault(&c.MaxJobs, 50_000_000)
	orDefault(&c.MaxBytes, 20<<30)
	orDefault(&c.Delay, time.Second)
	orDefault(&c.Batch, 8<<20)
	orDefault(&c.Waiting, 64<<20)
	orDefault(&c.Most, 256<<20)
	orDefault(&c.FetchEvery, 2*time.Second)
	orDefault(&c.FetchRate, 32<<20)
	orDefault(&c.ScrubFirst, time.Minute)
	orDefault(&c.ScrubEvery, 24*time.Hour)
	orDefault(&c.ScrubRate, 1<<20)
	if c.Sources == nil {
		c.Sources = func(context.Context) ([]Source, bool) { return nil, false }
	}
}

// Stats is what there is to know of a history at a moment.
type Stats struct {
	Jobs, Bytes   uint64 // in the file; bytes of records and index, about
	FileBytes     int64  // length of the file: what it once needed
	Pending       int    // jobs that are not in the file yet
	PendingBytes  int    // their memory, about
	Lag           time.Duration
	Through       uint64 // log index up to which the file is whole, but for gaps
	Incomplete    bool   // it lacks jobs that another replica may have
	Expired       uint64 // jobs dropped since the start, because of age, number or bytes
	Damaged       uint64 // files set aside since the start
	Fetched       uint64 // jobs had from other replicas, or from a file set aside, since the start
	Scrubbed      uint64 // bytes of records checked since the start
	Scrubs        uint64 // how often all of the file was checked and is fine
	WriteFailures uint64
}

var _ fsm.Archiver = (*History)(nil)
