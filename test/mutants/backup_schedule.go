package mutants

// inBackupSchedule returns the planted bugs of scheduled backups.
func inBackupSchedule() []Mutant {
	return []Mutant{
		{
			Name:   "a-backup-takes-a-whole-processor",
			Edits:  []Edit{{"coordinator/api/yielding_writer.go", `y.bytes >= messageBytes && err == nil`, `y.bytes < 0 && err == nil`}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "LeavesHalfOfAProcessor"}},
		},
		{
			Name:   "a-backup-that-was-not-handed-over-displaces-older-ones",
			Edits:  []Edit{{"coordinator/api/backup_directory.go", `if err := a.handOver(ctx, dir, added); err != nil {`, `if err := errors.Join(a.handOver(ctx, dir, added), dir.Prune(keep)); err != nil {`}},
			Caught: []Checker{{Package: "./coordinator/api", Run: "NotHandedOver"}},
		},
		{
			Name:   "a-backup-counts-although-its-command-failed",
			Edits:  []Edit{{"coordinator/backup_command.go", `		case err == nil:`, `		case err == nil || stderr != "":`}},
			Caught: []Checker{{Package: "./coordinator", Run: "CommandOfABackupThatFails"}},
		},
		{
			Name: "a-backup-that-was-not-written-counts-as-one",
			Edits: []Edit{{"fsm/op_backup.go", `		b.failure = o.BackupRun
`, `		b.success = o.BackupRun
`}},
			Caught: []Checker{{Package: "./fsm", Run: "LastSuccessfulBackup"}},
		},
		{
			Name:   "a-failed-backup-is-not-repeated-by-another-follower",
			Edits:  []Edit{{"coordinator/backup_schedule.go", `return s.ID > failed }`, `return s.ID == failed }`}},
			Caught: []Checker{{Package: "./coordinator", Run: "IsRepeatedByTheNextFollower"}},
		},
		{
			Name:   "a-directory-that-hangs-delays-the-next-schedule-of-backups",
			Edits:  []Edit{{"coordinator/backup_schedule.go", `b.awaitReplaced(ctx, s); abandon(errReplacedSchedule) })`, `b.awaitReplaced(ctx, s) })`}},
			Caught: []Checker{{Package: "./coordinator", Run: "ReplacedScheduleIsAbandoned"}},
		},
		{
			Name:   "a-scheduled-backup-gets-its-name-unchecked",
			Edits:  []Edit{{"internal/backup/directory.go", `state.Keep(check)`, `state.Keep(nil)`}},
			Caught: []Checker{{Package: "./internal/backup", Run: "CanNotBeBuilt"}},
		},
		{
			Name:   "a-restored-cluster-keeps-the-schedule-of-backups",
			Edits:  []Edit{{"fsm/restoration.go", `	s.backups = backups{} `, `	s.backups.failure = BackupRun{} `}},
			Caught: []Checker{{Package: "./fsm", Run: "HasNoScheduleOfBackups"}},
		},
	}
}
