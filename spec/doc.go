// Package spec reads job files: it parses YAML or JSON into a checked
// [dtaskv1.JobSpec], or returns all faults of the file at once. Coordinators
// use it to check jobs that arrive in decoded form ([Check], [Checker]). Rules
// about single values are in rules.go and shared by both.
//
// The package reads no files, uses no clock and no network, starts no
// goroutines, and depends on neither client nor server. It doesn't check
// whether a handler type exists or an input can be read: only workers know
// that.
//
// # How a file is read
//
//	text ─ load ─► nodes ─ survey ─► same nodes, safe to walk ─ reader ─► builders ─ graph ─► JobSpec
//	        │                │                                    │                │
//	    not UTF-8, NUL,   duplicate keys, alias bombs,      wrong kinds, unknown  missing, self,
//	    syntax, size      depth, several documents          fields, bounds        cycles
//
// Before the reader, the values of parameters are inserted into the nodes
// (params.go, insert.go): each field is checked with what was inserted.
//
// Every step adds to the same list of faults and continues with what it could
// parse. Only faults that make the next steps meaningless stop it: invalid
// YAML, an alias bomb, a file that is not a mapping, a parameter without a
// valid value.
//
// # Choices where the format leaves one
//
//   - `job.defaults` holds the policy fields of a task: priority, timeout,
//     queue_timeout, start_timeout, heartbeat_timeout, expect, retry, env,
//     execution, resources, require, prefer, place, affinity, preemptible, uses, secrets,
//     kill_grace, shell, cwd, umask. A task's own value wins; mappings (env, resources,
//     require, prefer, retry) are merged key by key, lists and queue_timeout are replaced.
//   - A list must be written as a list, and a single value as a value:
//     `dependencies: a`, `inputs: a`, `input: [a]` and `retry: 3` are
//     refused with the right form.
//   - Text must be text: `id: 12` and `env: {N: 1}` are refused with the
//     advice to quote. The exception is payload, which accepts any value.
//   - Keys that start with `x-` are ignored wherever fields have fixed
//     names, but not in env, labels, resources, require and payload, where
//     keys are data.
//   - A parameter has either a default or `required: true`, so that no file depends on
//     what a missing value would mean.
//   - A `retry.initial` above the default `max_delay` raises the maximum.
//
// # Limits
//
// A file has at most 16 MiB and 100,000 tasks; aliases may add at most 64 MiB.
// By default a payload has at most 64 KiB (never more than 128 KiB), the
// environment of a task together with the job's 64 KiB, an argument list or
// shell text 32 KiB. A header with all its policies, and each task, has at
// most 384 KiB when encoded, so that each fits into a log entry beside other
// operations. A job has at most 1,000,000 tasks, 4,000,000 dependencies and
// 256 MiB. It has at most 64 parameters of 1 KiB each and 16 KiB together.
//
// # Errors
//
// The only error is [Faults]. It lists up to 100 faults and the number of the
// others.
package spec
