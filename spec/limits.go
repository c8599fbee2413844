package spec

import "time"

// Limits of jobs and job files. Sizes are in bytes.
const (
	MaxFileBytes    = 16 << 20  // text of a job file
	MaxListedTasks  = 100_000   // tasks in a job file
	MaxTasks        = 1_000_000 // tasks of a job from any source
	MaxDependencies = 4_000_000 // dependencies of all tasks of a job
	MaxJobBytes     = 256 << 20 // header and all tasks, encoded
	MaxHeaderBytes  = 384 << 10 // header with its policies, encoded
	MaxTaskBytes    = 384 << 10 // one task, encoded

	DefaultPayload = 64 << 10  // payload of a task by default
	MaxPayload     = 128 << 10 // highest configurable limit

	MaxNameLength   = 63       // characters of job names, types and label names
	MaxIDLength     = 128      // characters of task IDs
	MaxOwnerBytes   = 63       // a job's owner
	MaxEnvBytes     = 64 << 10 // environment of a task together with its job's: names, values, and 2 for each pair
	MaxCommandBytes = 32 << 10 // argument list (and 1 for each argument) or shell text
	MaxPathBytes    = 4096     // one input or output
	MaxWebhookBytes = 2048     // a job's webhook
	MaxLabels       = 64       // labels of a job, required labels of a task, resources of a task
	MaxValueBytes   = 255      // value of a label
	MaxItemBytes    = 32 << 10 // an item of an array, as JSON
	MaxClasses      = 64       // failure classes in retry.on or retry.except

	MaxNeeds = 1000 // jobs that a job needs

	MaxParams      = 64       // parameters of a job
	MaxParamBytes  = 1 << 10  // value of a parameter
	MaxParamsBytes = 16 << 10 // names and values of all parameters of a job

	MaxReuseKeyBytes = 256                 // reuse.key
	MaxReuse         = 90 * 24 * time.Hour // reuse.for

	MaxRetries    = 1_000_000             // retry.max
	MaxDuration   = 3650 * 24 * time.Hour // any duration in a job
	maxMultiplier = 100_000               // retry.multiplier in thousandths

	// maxAmount is the highest amount of a resource in its unit, 2⁵⁰: a pebibyte
	// of memory. In thousandths it is far below the maximum of int64.
	maxAmount = 1 << 50
)

// Limits of the parser.
const (
	maxFaults = 100      // faults that are reported
	maxKept   = 10_000   // faults that are kept for sorting
	maxDepth  = 100      // nesting depth with aliases resolved
	maxGrowth = 64 << 20 // expansion by aliases, in bytes of text plus nodeWeight per node
	maxCycles = 10       // cycles that are reported per group

	maxShellArgs = 32 // arguments of a shell before its text

	// nodeWeight is the cost of each node that an alias repeats.
	nodeWeight = 16
)
