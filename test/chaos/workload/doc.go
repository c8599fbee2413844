// Package workload is the traffic of the chaos suite: clients that submit jobs of
// several shapes, submit some again with the same key, cancel some, read them, and
// wait for the end of each. Every call is recorded (package history), and every task
// writes to the ledger. One more client sets schedules, pauses, replaces and deletes them,
// and reads what became of their ticks, and another one asks why tasks are in their states, and
// for the plan of a job that is never submitted. With Config.Handovers, the traffic is short
// tasks with limits instead.
//
// The seed and the number of the client decide what is submitted; the cluster's speed
// decides when. Run returns when all clients have ended; methods may be called
// meanwhile.
package workload
