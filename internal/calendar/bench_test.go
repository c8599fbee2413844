package calendar

import (
	"fmt"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/zoneinfo"
)

// benchSchedule is a schedule of one expression.
func benchSchedule(b *testing.B, name, cron, in string) *Schedule {
	b.Helper()
	z, err := zoneinfo.Load(in)
	if err != nil {
		b.Fatal(err)
	}
	e, err := ParseCron(cron)
	if err != nil {
		b.Fatal(err)
	}
	s, err := New(Config{Name: name, Zone: z, Cron: []*Expression{e}, Jitter: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkNextOfTenThousandSchedules is the time of a new leader for the next ticks of as
// many schedules as a cluster has at most, each with another expression, in all zones. It
// must be at most 100 ms.
func BenchmarkNextOfTenThousandSchedules(b *testing.B) {
	const schedules = 10_000
	zones := zoneinfo.Names()
	list := make([]*Schedule, schedules)
	for i := range list {
		cron := fmt.Sprintf("%d %d * * *", i%60, i/60%24)
		switch i / (60 * 24) % 3 {
		case 1:
			cron = fmt.Sprintf("%d %d * * %d", i%60, i/60%24, i%7)
		case 2:
			cron = fmt.Sprintf("%d %d %d %d *", i%60, i/60%24, 1+i%28, 1+i%12)
		}
		list[i] = benchSchedule(b, fmt.Sprintf("s%d", i), cron, zones[i%len(zones)])
	}
	after := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	for b.Loop() {
		for _, s := range list {
			if _, ok := s.Next(after); !ok {
				b.Fatal("a schedule has no next tick")
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "ms")
}

// BenchmarkRarestNext is the time for the next tick on 29 February after that of 2096, which
// is eight years later. It must be at most 1 ms.
func BenchmarkRarestNext(b *testing.B) {
	s := benchSchedule(b, "leap", "59 23 29 2 *", "America/New_York")
	after := time.Date(2096, 3, 1, 12, 0, 0, 0, time.UTC)
	for b.Loop() {
		if _, ok := s.Next(after); !ok {
			b.Fatal("the schedule has no next tick")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ms")
}
