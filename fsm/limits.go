package fsm

// Limits of an operation, in bytes. They are far above what the coordinator
// accepts, and belong to the log's format: changing one changes what replicas
// accept. Without them, an entry could create a state whose snapshot cannot
// be read.
const (
	maxResult = 4 << 10 // inline result of a task
	maxText   = 8 << 10 // errors, reasons, names, keys
	maxBlob   = 8 << 20 // header of a job, tasks of a chunk: half a snapshot frame
	sha256Len = 32

	maxCheckpoint     = 64 << 10  // one, inline
	maxCheckpointFile = 512       // path of one in a file
	maxCheckpoints    = 256 << 20 // all together, on each replica

	maxNotifications = 10_000 // undelivered ones; 40 bytes each

	maxIdentities   = MaxIdentities
	maxJoinTokens   = 10_000 // ended ones too
	maxIdentityName = 63
	maxIdentityText = 256     // names of those who ask, server ids
	maxRequestKey   = 128     // idempotency key
	maxCredentials  = 2       // of an identity, and keys of a replica
	maxNamespaces   = 64      // of an identity
	maxGrantLabels  = 64      // of an identity
	maxGrantText    = 4 << 10 // namespaces and labels of an identity
	maxRevoked      = 100     // identities, by one operation
	maxForgotten    = 10_000  // identities and join tokens, by one operation
	maxRoots        = 4
	maxRoot         = 4 << 10
	maxPins         = 10_000 // replicas: their ids are never reused
	maxAuditHeads   = 64     // coordinators, also those that have left
	maxBackupTarget = 1 << 10

	maxSchedules        = 10_000
	maxTemplates        = 64 << 20  // headers and tasks of all schedules together
	maxRecurrence       = 256 << 10 // of one schedule, encoded
	maxScheduleOutcomes = 20        // the last ones of a schedule
	maxOpenRuns         = 100       // of a schedule, that have not ended

	maxNamedLimits = 10_000

	maxWaitingJobs      = 99   // for a concurrency key
	maxConcurrencyKey   = 256  // bytes
	maxConcurrencyLimit = 1000 // jobs that run with one key
	maxQueues           = 1_000
	maxQueueText        = 16 << 10 // settings of a queue, encoded
)

// MaxRate, MaxRatePeriodMS and MaxRateBurst bound the rate of a limit or a queue, so that their
// products fit into 63 bits.
const (
	MaxRate         = 10_000_000
	MaxRatePeriodMS = 24 * 60 * 60 * 1000
	MaxRateBurst    = 1_000_000
)

// malformedRate reports whether settings are neither those of a rate nor all 0.
func malformedRate(n, periodMS, burst uint32) bool {
	return (n == 0) != (periodMS == 0) || (n == 0) != (burst == 0) || n > MaxRate || periodMS > MaxRatePeriodMS || burst > MaxRateBurst
}

// MaxQueueWeight is the largest weight of a queue.
const MaxQueueWeight = 10_000

// MaxIdentities is how many identities a cluster can have, revoked ones too.
const MaxIdentities = 100_000

// tooLong reports whether one of the texts exceeds maxText.
func tooLong(texts ...string) bool {
	for _, t := range texts {
		if len(t) > maxText {
			return true
		}
	}
	return false
}
