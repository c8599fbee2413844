package history

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/dtask/dtask/fsm"
)

// Source is another replica that jobs can be fetched from.
type Source interface {
	// Fetch calls take with the chunks of all jobs at positions after a given one,
	// with log indexes up to to, in order; the chunks of a job come before its head.
	// complete means that the source lacks none of them; it is passed with each call
	// and returned. Fetch returns the first error of take unchanged.
	Fetch(ctx context.Context, after Position, to uint64, take func(c Chunk, complete bool) error) (complete bool, err error)
}

// Chunk is a record, or a part of one, as it travels to another replica.
type Chunk struct {
	Position
	Number uint32 // from 1; 0 = the head, or a whole record
	Total  uint32 // with the head: number of the other chunks
	Data   []byte
}

// Config is what a History needs. Zero limits mean the defaults.
type Config struct {
	Path   string // of the file; its directory must exist
	Logger *slog.Logger

	// Summarize returns the summary of a job, which History.Summary reads without the
	// rest of the record; nothing for a job that is read fast enough without. The
	// writer calls it. nil: no job gets a summary.
	Summarize func(*fsm.ArchivedJob) []byte

	// MaxJobs and MaxBytes bound what is kept; defaults 50 million and 20 GiB. The
	// oldest jobs are dropped first.
	MaxJobs, MaxBytes uint64
	// WriteDelay is how long a job may wait to be written together with others, and
	// BatchBytes the size of the records of one write; defaults 1 s, 8 MiB.
	WriteDelay time.Duration
	BatchBytes int
	// BusyBytes is how many bytes of pending jobs make Busy report true, and
	// MaxPendingBytes how many make WaitForSpace wait; defaults 64 MiB and 256 MiB.
	BusyBytes, MaxPendingBytes int
	// Sources returns the other replicas, the best first, and whether they are all
	// members of the cluster. nil: that is never known.
	Sources func(ctx context.Context) (sources []Source, all bool)
	// FetchInterval is the pause after no source could fill a gap; default 2 s. FetchBytes
	// is how many bytes are fetched or imported between two transactions; default 4 MiB.
	FetchInterval time.Duration
	FetchBytes    int
	// ImportRate is how many bytes of a restored backup are imported per second; default
	// 8 MiB.
	ImportRate int
	// ImportAfter is closed when the import may begin: until then, the state is read, and the
	// cluster answers nothing. nil: at once.
	ImportAfter <-chan struct{}
	// ScrubDelay is how long after the start the file is checked first, ScrubInterval
	// the time from the start of a check to the next, and ScrubRate how many bytes of
	// records are checked per second; defaults 1 min, 24 h, 1 MiB.
	ScrubDelay, ScrubInterval time.Duration
	ScrubRate                 int
}

func (c *Config) defaults() {
	c.MaxJobs = cmp.Or(c.MaxJobs, 50_000_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 20<<30)
	c.WriteDelay = cmp.Or(c.WriteDelay, time.Second)
	c.BatchBytes = cmp.Or(c.BatchBytes, 8<<20)
	c.BusyBytes = cmp.Or(c.BusyBytes, 64<<20)
	c.MaxPendingBytes = cmp.Or(c.MaxPendingBytes, 256<<20)
	c.FetchInterval = cmp.Or(c.FetchInterval, 2*time.Second)
	c.FetchBytes = cmp.Or(c.FetchBytes, 4<<20)
	c.ImportRate = cmp.Or(c.ImportRate, importRate)
	if c.ImportAfter == nil {
		begun := make(chan struct{})
		close(begun)
		c.ImportAfter = begun
	}
	c.ScrubDelay = cmp.Or(c.ScrubDelay, time.Minute)
	c.ScrubInterval = cmp.Or(c.ScrubInterval, 24*time.Hour)
	c.ScrubRate = cmp.Or(c.ScrubRate, 1<<20)
	if c.Sources == nil {
		c.Sources = func(context.Context) ([]Source, bool) { return nil, false }
	}
}

// Stats are counts and sizes of a history.
type Stats struct {
	Jobs, Bytes   uint64 // in the file; bytes of records and index, estimated
	FileBytes     int64  // length of the file, free pages included
	Pending       int    // jobs that are not in the file yet
	PendingBytes  int    // their memory, estimated
	Lag           time.Duration
	CompleteTo    uint64 // log index up to which the file is complete, except for gaps
	Incomplete    bool   // it lacks jobs that another replica may have
	ImportJobs    uint64 // jobs of a restored backup that is being imported
	ToImport      uint64 // of these, jobs that are not in the file yet; they can be read
	Expired       uint64 // jobs dropped since the start, because of age, number or bytes
	Quarantined   uint64 // damaged files quarantined since the start
	Fetched       uint64 // jobs fetched from replicas or salvaged, since the start
	Scrubbed      uint64 // bytes of records checked since the start
	Scrubs        uint64 // complete checks of the file that found no damage
	WriteFailures uint64
}

var _ fsm.Archiver = (*History)(nil)
