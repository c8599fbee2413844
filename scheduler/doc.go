// Package scheduler decides which ready task runs next, and on which worker.
//
// It is pure policy: no clock, no I/O, no goroutines, no floats, and no result
// that depends on the order of a map. One seed and one sequence of calls give
// one sequence of assignments. The leader's sequencer owns a Scheduler for one
// term, fills it from the replicated state when the term starts, and throws it
// away with the term; nothing here survives or is replicated.
//
//	         Push(task, class, priority, avoid)
//	                       │
//	urgent ┌───────────────▼──────────────┐    one lane for each class and
//	high   │ class 0   ▪▪▪▪▪▪             │    priority: a FIFO of runs of tasks
//	normal │ class 1   ▪▪                 │    side by side, 32 bytes each. A heap
//	low    │ class 2   ▪▪▪▪   (blocked)   │    per priority orders the lanes by
//	       │                              │    their oldest task.
//	       └───────────────┬──────────────┘
//	                       │ Next: highest priority, then oldest
//	                       ▼
//	     heap of workers by used/slots (full ones last), then by turn
//	                       │ least loaded that fits
//	                       ▼
//	           Assignment{Task, Worker, …}
//
// # What it owns
//
// The order of ready tasks, the free slots and resources of workers as far as
// this term has given them away, and nothing else. It does not know jobs,
// dependencies, attempts, states or time: the sequencer pushes a task when it
// may run, and says with the valid function of Next whether it still may. The
// state machine checks what is assigned here; it never chooses.
//
// # Classes
//
// Tasks with equal demands share a class, so that one look at a class answers
// for all of its tasks. A class for which no worker has room is blocked: its
// lanes leave the heaps and cost nothing until a worker on which it would fit
// gives something back, joins, or accepts again.
//
// Invariant: a class that is not blocked either fits somewhere or has not been
// tried since capacity last changed in its favour; a blocked class fits nowhere,
// or is full.
//
// # Ahead of a free slot
//
// A worker may be given some tasks more than it has slots (SetAhead): they wait
// there, so that a slot need not wait for the log when its task ends. That is
// for short tasks that need nothing but a slot; the sequencer says for whom. They
// go to a worker only when none has a free slot, because loads are compared.
//
// # Limits
//
// A limited class is full, and so blocked, while as many of its attempts are held
// as it may have: that is how max_parallel of an array is kept. Its tasks keep
// their places in the order meanwhile, so that a limit costs an array nothing
// against what came after it.
//
// # Least loaded, in turn
//
// Loads are compared as fractions, exactly, by cross-multiplication. Equal loads
// are ordered by turn: a random number above the count of choices made so far,
// drawn anew each time that a worker is chosen. Turns rise with that count so
// that the choice stays random without favourites. With a plain random number
// the chosen worker would draw a new one while all others keep theirs; soon
// the others would hold only high ones, and one worker would win every tie.
//
// # Room to grow
//
// Fair shares between queues take a level between priority and lanes: a heap of
// queues by their share, each with a heap of lanes. Aging changes the key
// by which Next compares the heads of the priorities. Another placement strategy is
// another order of the heap of workers, that is another worker.before.
//
// A Scheduler is for one goroutine. Nothing here returns an error: what the
// caller must not do is said at each method, with what happens if it does.
package scheduler
