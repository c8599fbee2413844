// Package spec reads what users write: it turns the text of a job file, YAML or
// JSON, into a checked [dtaskv1.JobSpec], or into all faults of the file at once.
//
// # What it owns
//
// The format of the job file, its limits and its defaults; the wording of its
// faults; and the server's own check of a job that somebody else made ([Check],
// [Checker]). A rule about a job stands once, in rules.go, and both use it.
//
// # What it does not do
//
// It reads no files, asks no clock and no network, starts no goroutine and knows
// neither client nor server. It does not look whether a handler type exists or
// an input can be read: only workers know that.
//
// # How a file is read
//
//	text ─ load ─► nodes ─ survey ─► same nodes, safe to walk ─ reader ─► drafts ─ graph ─► JobSpec
//	        │                │                                    │                │
//	    not UTF-8, NUL,   duplicate keys, alias bombs,      wrong kinds, unknown  missing, self,
//	    syntax, size      depth, several documents          fields, bounds        cycles
//
// Every step adds to the same list of faults and goes on with what it could
// understand. Only what makes the following steps meaningless stops them: text
// that is no YAML, an alias bomb, no mapping.
//
// # Choices where the format leaves one
//
//   - `job.defaults` holds the policy fields of a task: priority, timeout,
//     queue_timeout, heartbeat_timeout, retry, env, execution, resources, require,
//     kill_grace. A task's own value wins; mappings (env, resources, require,
//     retry) are merged key by key, lists are replaced.
//   - A list is written as a list and one value as one value: `dependencies: a`,
//     `inputs: a`, `input: [a]`, `retry: 3` are refused with the right form.
//   - Text is text: `id: 12` and `env: {N: 1}` are refused with the advice to
//     quote. The exception is payload, which takes any value.
//   - Keys that begin with `x-` are ignored wherever fields have fixed names, but
//     not in env, labels, resources, require and payload, where keys are data.
//   - A delay of `retry.initial` above the default `max_delay` raises that.
//
// # Bounds
//
// A file has at most 16 MiB and 100,000 tasks; aliases may add at most 64 MiB.
// Payload 64 KiB unless set otherwise (never above 128 KiB), environment of a
// task 64 KiB with the job's, argument list or shell text 32 KiB. A header with
// all its policies, and each task, has at most 384 KiB encoded, so that each
// fits into one log entry beside other operations. A job has at most 1,000,000
// tasks, 4,000,000 dependencies and 256 MiB.
//
// # Errors
//
// The only error is [Faults]. It is complete up to 100 faults and says how many
// more there are.
package spec
