package sequencer

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/zoneinfo"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// DatedRun returns the run of a schedule with the date of its tick, by the time zones of this
// process. A run without a time zone or without a tick, and one whose zone this version of
// dtask does not know, is returned as it is. The run may be nil and is not changed.
func DatedRun(r *dtaskv1.ScheduledRun) *dtaskv1.ScheduledRun {
	if r.GetTimezone() == "" || r.GetTickMs() == 0 {
		return r
	}
	zone, err := zoneOf(zoneinfo.Load, r.GetTimezone())
	if err != nil {
		return r
	}
	dated := proto.CloneOf(r)
	dated.Date = time.UnixMilli(r.GetTickMs()).In(zone).Format(time.DateOnly)
	return dated
}
