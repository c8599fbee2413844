// Package scheduler decides which ready task runs next, and on which worker.
//
// It is pure policy: no clock, no I/O, no goroutines, no floats, and no result
// that depends on the order of a map. One seed and one sequence of calls give
// one sequence of assignments. The leader's sequencer owns a Scheduler for one
// term. It fills it from the replicated state at the start of the term, and
// drops it at the end. Nothing here is stored or replicated.
//
//	         Push(task, class, priority, avoid)
//	                       │
//	queue etl   ┌──────────▼─────────┐   a flow per owner and queue. One ready queue per
//	 ├ urgent   │ alice  ▪▪▪▪▪▪      │   class and priority of a flow: a FIFO of runs of
//	 ├ …        │ bob    ▪▪          │   consecutive tasks, 32 bytes each.
//	 └ low      │ alice  ▪▪ (parked) │
//	queue ml    │ …                  │
//	            └──────────┬─────────┘
//	                       │ Next: smallest share of a queue, highest priority,
//	                       │       smallest share of an owner, oldest
//	                       ▼
//	     heap of workers by used/slots (full ones last), then by turn
//	                       │ least loaded that fits
//	                       ▼
//	           Assignment{Task, Worker, …}
//
// # Ownership
//
// The package owns the order of ready tasks, and the free slots and resources
// of workers as far as this term has assigned them. It doesn't know jobs,
// dependencies, attempts, states or time. The sequencer pushes a task when it
// may run, and the valid function of Next reports whether it still may. The
// state machine checks assignments; it never chooses them.
//
// # Classes
//
// Tasks with equal demands share a class. Classes that require the same of a worker share
// a shape, so that one check of the shape answers for all of their tasks, whatever their
// queue, owner and limit. A shape for which no worker has capacity is blocked: its ready
// queues are parked outside of the heaps when they are at the front, and cost nothing
// until a worker that would fit releases something, joins, or accepts tasks again. Then
// they return to the heaps one by one, as soon as each would be the first there
// (wait_part.go): a release costs what can start, however many owners wait. If
// only blocked shapes have tasks, Next returns without looking at them.
//
// Invariant: a shape that is not blocked either fits somewhere, or was not tried since
// capacity last grew. A blocked shape fits nowhere.
//
// # Queues and owners
//
// Queues are ordered by the largest share of anything that their attempts hold, divided by
// the weight, and owners in a priority of a queue by their share; among equals, the least
// recently served is first. What is held now counts, not what was started: long and short
// tasks share the time of slots, and a new term knows it from the attempts. The keys in the
// heaps may lag behind: see orderKey. With one queue and one owner, nothing is compared.
//
// Every 16th start of a queue is its oldest task, which bounds the wait of each task. If an
// older one is blocked then, a worker is kept free for it: see reservation.go.
//
// What a blocked task takes of the quotas of its queue is saved for it: see saving.go.
//
// Quotas and pauses of a queue hold its tasks back. They are counted for all attempts,
// those included that no worker is known to hold.
//
// # Preemption
//
// A queue's urgent task that has waited for a second, and starts nowhere, may take the place of
// attempts of lower priorities in this queue that the sequencer has named (Yields). Preempt chooses
// a worker and how many of which attempts must end there, and keeps it for the task: see preempt.go.
//
// # Prefetching
//
// A worker may hold some attempts more than it has slots (SetPrefetch). They
// wait there, so that a slot need not wait for the log between two tasks.
// Prefetching is for short tasks that need nothing but a slot; the sequencer
// decides for which workers. A worker gets such attempts only if no worker has
// a free slot, because placement compares loads. If a slot becomes free
// elsewhere, Rebalance returns what to move.
//
// A task with a key is prefetched by the worker of the key: see Affinity.
//
// Prefetching must not delay others. A task of a higher priority overtakes what
// waits: it is assigned to a full worker, which starts it first (overtake.go).
// For a task that is never prefetched, one worker is reserved: it prefetches
// nothing until it has a free slot. Otherwise short tasks, which need no free
// slot, could take each place for as long as there are any.
//
// # Types
//
// A worker that names the types of tasks that it handles gets no others. One
// that names none gets all.
//
// # Namespaces
//
// A worker that names the namespaces that it serves gets no tasks of others. One that
// names none gets those of all.
//
// # Limits
//
// A limited class is full while it has as many attempts as its limit allows, and its ready
// queues are parked. This implements max_parallel of an array. Its tasks keep their
// position in the order meanwhile: later tasks don't overtake them.
//
// What waits for a named limit or a quota of its queue returns to the order as what waits for
// capacity does. The first few ready queues are in a list, and return together (listed_wait.go).
//
// # Least loaded, in turn
//
// Loads are compared as fractions, exactly, by cross-multiplication. Workers of
// equal load are ordered by turn: a random number above the count of choices
// made so far, drawn again each time a worker is chosen. Turns grow with that
// count so that the choice stays random and fair. With a plain random number,
// the chosen worker would draw a new one while all others keep theirs; soon the
// others would have only high numbers, and one worker would win every tie.
//
// # Other choices
//
// A class may prefer workers by their labels, and have another strategy than the least loaded
// worker (strategy.go). Both decide only among workers that fit, and never between a free slot
// and a place to wait: what fits where, and so all explanations, do not depend on them. Pack has
// an order of workers of its own, which exists while it is used (pack.go).
//
// # Affinity
//
// A task with a key runs on the worker of the key (affinity.go). While that has no capacity, the
// ready queue is parked, and other tasks start before it. It returns to the order if the
// worker has capacity, if workers join or leave, and at the turn by age. The worker may prefetch
// it, but while another one is idle, not more tasks than it has slots. Once nothing else can
// start and a worker is idle, tasks spill: they start elsewhere if they have waited for a
// second, or if too many wait for their worker (affinity_wait.go). The latter may be prefetched
// elsewhere, too. Time is a number that the caller passes to Advance. Explanations know the
// worker of each key (affinity_view.go): a trial starts a task with a key only there. It is
// undecided if the task could spill after a change, and if the id of a worker that joins decides
// whether keys move to it.
//
// # Explaining
//
// View copies what decides about one task: the workers, and the tasks before it. From the
// copy, TaskView.Changes finds every single change after which the task would get a free
// slot. It relies on the invariant above: once Next has returned false, no task fits
// anywhere, so that a change of one worker matters only there, and only to the tasks that
// compete for it in order (trial.go), until one of their starts reserves the worker for another
// task (trial_reservation.go). What is added here and can hold a task back needs an obstacle
// (obstacle.go), and a kind of change if a change removes it (change.go).
//
// A Scheduler is for one goroutine, and nothing here returns an error. Each
// method documents what the caller must not do, and what happens if it does.
package scheduler
