// Package workload is the traffic of the chaos suite: clients that submit jobs
// of several shapes, submit some again under the same key, cancel some, read
// them, and see each to its end. Every call is recorded (package history), and
// every task writes to the ledger.
//
// What is submitted follows from the seed and the number of the client; when,
// from what the cluster does. Run returns once all clients have ended; methods
// may be called meanwhile.
package workload
