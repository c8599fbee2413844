package process

// PoolStats counts the supervisors of a pool.
type PoolStats struct {
	Started uint64
	Lost    uint64 // could not be started, or ended while they ran or waited for a program
}
