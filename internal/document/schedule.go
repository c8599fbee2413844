package document

import (
	"strings"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Schedules is a list of schedules.
type Schedules struct {
	Schedules []Schedule `json:"schedules"`
}

// Schedule is a schedule of a cluster.
type Schedule struct {
	Name        string             `json:"name"`
	Namespace   string             `json:"namespace"`
	Version     uint32             `json:"version"`
	State       string             `json:"state"`  // active, paused, held or ended
	Owner       string             `json:"owner"`  // of its jobs
	SetBy       string             `json:"set_by"` // empty: the cluster has no identities
	Tasks       uint32             `json:"tasks"`  // of each of its jobs
	Definition  ScheduleDefinition `json:"definition"`
	CreatedAt   string             `json:"created_at"`
	ChangedAt   string             `json:"changed_at"` // when it was last set
	PausedAt    *string            `json:"paused_at"`  // null: it is not paused
	PausedBy    string             `json:"paused_by"`
	PauseReason string             `json:"pause_reason"`
	Next        []ScheduleTick     `json:"next"`      // empty while it is paused or held
	Why         []string           `json:"why"`       // why the next tick is when it is; for people
	OpenJobs    []string           `json:"open_jobs"` // runs that have not ended
	Last        *ScheduleOutcome   `json:"last"`      // null: nothing yet
}

// ScheduleWithOutcomes is a schedule with what happened to its last ticks.
type ScheduleWithOutcomes struct {
	Schedule
	Outcomes []ScheduleOutcome `json:"outcomes"` // the last 20, the newest first
}

// ScheduleDefinition is when a schedule fires, in the words of job files.
type ScheduleDefinition struct {
	Cron           []string `json:"cron"`
	EveryMS        int64    `json:"every_ms"` // 0 = it has none
	At             []string `json:"at"`
	Timezone       string   `json:"timezone"`
	Gap            string   `json:"gap"`
	Repeat         string   `json:"repeat"`
	JitterMS       int64    `json:"jitter_ms"`
	From           string   `json:"from"`  // empty = no bound
	Until          string   `json:"until"` // empty = no bound
	Except         []string `json:"except"`
	Overlap        string   `json:"overlap"`
	Missed         string   `json:"missed"`
	MissedWithinMS int64    `json:"missed_within_ms"` // 0 = missed ticks don't run
}

// ScheduleTick is a tick that will fire.
type ScheduleTick struct {
	At      string `json:"at"`
	Local   string `json:"local"`    // in the zone of the schedule, with its offset
	StartAt string `json:"start_at"` // at and the jitter
	Note    string `json:"note"`     // what is unusual about it; empty = nothing
}

// ScheduleOutcome is what happened to a tick, or a run that a user started.
type ScheduleOutcome struct {
	TickAt    *string `json:"tick_at"` // null: a run for no tick
	DecidedAt string  `json:"decided_at"`
	Decision  string  `json:"decision"` // ran, skipped_open or skipped_missed
	Job       *string `json:"job"`      // null: it was skipped
	State     *string `json:"state"`    // of the job; null: no job, it has expired, or it was not read
	Manual    bool    `json:"manual"`   // a user started it
	Earlier   uint32  `json:"earlier"`  // missed ticks before it that were skipped with it
}

// SetSchedule is a schedule that was set.
type SetSchedule struct {
	Schedule
	TimeZones string `json:"time_zones"` // version of the time zones that next was computed with, such as 2025c
}

// PausedSchedule is a schedule that was paused or resumed.
type PausedSchedule struct {
	Schedule
	Already bool `json:"already"` // nothing had to change
}

// DeletedSchedule names a schedule that was deleted.
type DeletedSchedule struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
}

// ScheduleBackfill is the runs of a backfill, the oldest tick first.
type ScheduleBackfill struct {
	Runs []BackfilledRun `json:"runs"`
}

// BackfilledRun is a run of a backfill.
type BackfilledRun struct {
	TickAt  string `json:"tick_at"`
	ID      string `json:"id"`      // of the job
	Existed bool   `json:"existed"` // an earlier backfill with this key started it
}

// NewSchedules converts a list of schedules.
func NewSchedules(all []*dtaskv1.Schedule) Schedules {
	return Schedules{Schedules: list(all, NewSchedule)}
}

// NewSchedule converts a schedule, without its outcomes.
func NewSchedule(x *dtaskv1.Schedule) Schedule {
	doc := Schedule{
		Name: x.GetName(), Namespace: x.GetNamespace(), Version: x.GetVersion(), State: x.GetState(), Owner: x.GetOwner(), SetBy: x.GetSetBy(),
		Tasks: x.GetTasks(), Definition: newScheduleDefinition(x.GetDefinition()), CreatedAt: Time(x.GetCreatedAt()), ChangedAt: Time(x.GetChangedAt()),
		PausedAt: optionalTime(x.GetPausedAt()), PausedBy: x.GetPausedBy(), PauseReason: x.GetPauseReason(),
		Next: list(x.GetNext(), newScheduleTick), Why: texts(x.GetWhy()), OpenJobs: texts(x.GetOpenJobs()),
	}
	if x.GetLast() != nil {
		doc.Last = new(newScheduleOutcome(x.GetLast()))
	}
	return doc
}

// NewSetSchedule converts a schedule that was set.
func NewSetSchedule(x *dtaskv1.Schedule) SetSchedule {
	return SetSchedule{Schedule: NewSchedule(x), TimeZones: x.GetTimeZones()}
}

// NewScheduleWithOutcomes converts a schedule with its outcomes.
func NewScheduleWithOutcomes(x *dtaskv1.Schedule) ScheduleWithOutcomes {
	return ScheduleWithOutcomes{Schedule: NewSchedule(x), Outcomes: list(x.GetOutcomes(), newScheduleOutcome)}
}

// NewScheduleBackfill converts the runs of a backfill.
func NewScheduleBackfill(runs []*dtaskv1.BackfilledRun) ScheduleBackfill {
	return ScheduleBackfill{Runs: list(runs, func(r *dtaskv1.BackfilledRun) BackfilledRun {
		return BackfilledRun{TickAt: Time(r.GetTickAt()), ID: r.GetJob(), Existed: r.GetExisted()}
	})}
}

func newScheduleDefinition(d *dtaskv1.ScheduleDefinition) ScheduleDefinition {
	doc := ScheduleDefinition{
		Cron: texts(d.GetCron()), EveryMS: d.GetEveryMs(), At: texts(d.GetAt()), Timezone: d.GetTimezone(),
		Gap: word(d.GetGap().String(), "SCHEDULE_GAP_"), Repeat: word(d.GetRepeat().String(), "SCHEDULE_REPEAT_"), JitterMS: d.GetJitterMs(),
		From: d.GetFrom(), Until: d.GetUntil(), Except: texts(d.GetExcept()),
		Overlap: ScheduleOverlap(d.GetOverlap()), Missed: ScheduleMissed(d.GetMissed()), MissedWithinMS: d.GetMissedWithinMs(),
	}
	if doc.Timezone == "" {
		doc.Timezone = "UTC"
	}
	return doc
}

func newScheduleTick(t *dtaskv1.ScheduleTick) ScheduleTick {
	return ScheduleTick{At: Time(t.GetAt()), Local: t.GetLocal(), StartAt: Time(t.GetStartAt()), Note: t.GetNote()}
}

func newScheduleOutcome(o *dtaskv1.ScheduleOutcome) ScheduleOutcome {
	doc := ScheduleOutcome{
		TickAt: optionalTime(o.GetTickAt()), DecidedAt: Time(o.GetDecidedAt()), Decision: enumName(o.GetDecision().String(), "SCHEDULE_DECISION_"),
		Job: optional(o.GetJob()), Manual: o.GetManual(), Earlier: o.GetEarlier(),
	}
	if o.GetState() != dtaskv1.JobState_JOB_STATE_UNSPECIFIED {
		doc.State = new(JobState(o.GetState()))
	}
	return doc
}

// ScheduleOverlap is a rule for overlaps as job files write it.
func ScheduleOverlap(o dtaskv1.ScheduleOverlap) string { return word(o.String(), "SCHEDULE_OVERLAP_") }

// ScheduleMissed is a rule for missed ticks as job files write it.
func ScheduleMissed(m dtaskv1.ScheduleMissed) string { return word(m.String(), "SCHEDULE_MISSED_") }

// word is the name of a value as job files write it: with hyphens.
func word(name, prefix string) string {
	return strings.ReplaceAll(enumName(name, prefix), "_", "-")
}
